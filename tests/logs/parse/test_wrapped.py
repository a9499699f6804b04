"""Lines that a console cut at its width, in the middle of words, as PowerShell does with stderr."""

from pathlib import Path

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Event, Sample
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.source.backlog import Backlog
from ldlm_monitor.logs.source.notices import Journal

LIBRARY = "C:\\Users\\someone\\miniconda3\\envs\\torch\\Lib\\site-packages\\torch\\nn\\modules"
TRACEBACK = f"""Traceback (most recent call last):
  File "C:\\Users\\someone\\projects\\diffusion\\train_model.py", line 412, in <module>
    main(config)
  File "C:\\Users\\someone\\projects\\diffusion\\train_model.py", line 388, in main
    loss = model(batch["pixel_values"], timesteps, encoder_hidden_states).mean()
  File "{LIBRARY}\\module.py", line 1553, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "{LIBRARY}\\linear.py", line 117, in forward
    return F.linear(input, self.weight, self.bias)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 128.00 MiB. GPU 0 has a total \
capacity of 8.00 GiB of which 0 bytes is free.
"""
DECORATION = """At line:1 char:1
+ python train_model.py *> train.log
+ ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
    + CategoryInfo          : NotSpecified: (Traceback (most...l last)::String) [], RemoteException
    + FullyQualifiedErrorId : NativeCommandError
 
"""  # noqa: W293 # PowerShell ends it with a line of one space


def cut(text: str, width: int) -> str:
    lines = (
        line[start : start + width]
        for line in text.splitlines()
        for start in range(0, max(len(line), 1), width)
    )
    return "".join(line + "\n" for line in lines)


def powershell(text: str, width: int) -> bytes:
    """As Windows PowerShell 5.1 writes a program's standard error by `*>`."""
    first, rest = f"python : {text}".split("\n", 1)
    written = cut(first, width) + cut(DECORATION, width) + cut(rest, width)
    return written.replace("\n", "\r\n").encode("utf-16")


def events(path: Path, data: bytes) -> list[Event]:
    path.write_bytes(data)
    backlog, parser, origin = Backlog.new(path, Journal()), Parser(), Origin("r")
    found = [record for chunk in backlog.all(0.0) for record in parser.feed(chunk, origin, 0.0)]
    backlog.tail.close()
    return [each for each in found + parser.finish(str(path)) if isinstance(each, Event)]


@pytest.mark.parametrize("width", [50, 60, 66, 79, 80, 100, 119, 120, 160, 237])
def test_a_traceback_that_powershell_cut_is_the_one_that_python_wrote(tmp_path, width) -> None:
    (plain,) = events(tmp_path / "train.log", TRACEBACK.encode())
    (found,) = events(tmp_path / "train.log", powershell(TRACEBACK, width))
    assert (found.kind, found.severity) == (plain.kind, plain.severity) == ("cuda_oom", "critical")
    assert found.fields["exc_type"] == "torch.OutOfMemoryError"
    assert found.fields["file"] == plain.fields["file"]


@pytest.mark.parametrize("width", [50, 60, 66, 79, 80, 100])
def test_a_message_that_a_narrow_terminal_cut_is_whole(tmp_path, width) -> None:
    (plain,) = events(tmp_path / "train.log", TRACEBACK.encode())
    (found,) = events(tmp_path / "train.log", cut(TRACEBACK, width).encode())
    assert found.message == plain.message


def test_another_writers_line_after_a_frame_is_not_its_rest() -> None:
    lines = TRACEBACK.splitlines(keepends=True)
    between = "step 12 | loss 2.5000 | lr 1.0e-4\n"
    text = "".join((*lines[:4], between, *lines[4:]))
    parser = Parser()
    found = parser.feed(Chunk("a", (1, 1, 0), 0, 1, text.encode(), final=True), Origin("r"), 0.0)
    (sample,) = [each for each in found if isinstance(each, Sample)]
    assert (sample.step, sample.values["loss"]) == (12, 2.5)
