"""A log may hold anything: on the screen it is text, and nothing a terminal or a markup obeys."""

from pathlib import Path

from ldlm_monitor.service.daemon.local_source import LocalSource
from ldlm_monitor.service.notify.silences import Silences
from tests.screen.screens import Screen, on_screen, read

HOSTILE = (
    b"[bold red]step[/bold red] [link=http://evil.example]x[/link] [@click=app.quit]q[/]\n"
    b"\x1b]0;owned\x07\x1b[2J\x1b[31mRuntimeError: \x1b]52;c;aGFja2Vk\x07CUDA error: "
    b"an illegal memory access\n"
    b"\xff\xfe broken \xc3( utf-8 \xe2\x80\xaeesrever \xc2\x9b31m\n"
    b"export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567\n"
)


def test_markup_escapes_and_secrets_do_nothing(tmp_path: Path) -> None:
    log = tmp_path / "train_logs" / "hostile.log"
    log.parent.mkdir()
    rows = b"".join(b"step %d loss 2.5\n" % step for step in range(30))
    log.write_bytes(rows + HOSTILE)
    snapshot = read(str(log))
    silences = Silences(tmp_path / "silences.sqlite")
    source = LocalSource(lambda: snapshot, silences, "[bold]name[/]")

    async def steps(screen: Screen) -> None:
        for page in "1235":
            await screen.press(page)
            assert "\x1b" not in screen.text
        await screen.press("4")
        text = await screen.until("[bold red]step[/bold red] [link=http://evil.example]x[/link]")
        assert "RuntimeError: CUDA error: an illegal memory access" in text
        assert "[redacted]" in text
        assert "0123456789abcdef" not in text
        assert not {"\x1b", "\x9b", "\u202e", "\x07"} & set(text)

    on_screen(source, steps, size=(140, 50))
    silences.close()
