"""The page of a run's host: GPUs, processes, memory, and the disk that its checkpoints go to."""

from collections.abc import Iterator, Sequence

from textual.app import ComposeResult

from ldlm_monitor.base.snapshot import DiskView, GpuView, HostView, RunView
from ldlm_monitor.base.text.format import byte_size
from ldlm_monitor.screen.draw import Glyphs, Line, StyledSpan, bar, fit, safe, wrap
from ldlm_monitor.screen.page_context import PageContext, whole_duration
from ldlm_monitor.screen.screen_page import ScreenPage
from ldlm_monitor.screen.widgets import Painted, RowList

_BAR = 20  # cells of a bar: a choice; 5 % are seen, and the numbers fit beside it in 60 cells
_SOON_SECONDS = 86400.0  # until a disk is full, as in the rule CheckpointDiskFilling
_THROTTLED = "gpu_throttled_"  # before the reason, in the names of a GPU's values
_STATES = {"R": "runs", "S": "sleeps", "D": "waits for a disk", "T": "stopped", "Z": "ended"}
_ELSEWHERE = (
    "None of this run's processes was found on the monitor's own host. To see them, start a "
    "monitor on the host that trains, and look at it from here: ldlm-monitor attach URL."
)
_OVER = "The run has ended: what it used is read while it runs."
_BY_CALLBACK = (
    "GPUs of any host are shown if the training uses the callback with the extra gpu: "
    "pip install 'ldlm-monitor[gpu]'; docs/callback.md has its two lines."
)
_NO_END = (
    "No end in sight: it takes four checkpoints whose path the log names, and less free space "
    "after each of them."
)


def page_lines(run: RunView, now: float, width: int, glyphs: Glyphs) -> list[Line]:
    """All lines of the page, for `width` cells. What is not known is named, and how to get it."""
    host = run.host
    lines = _gpus(run.gpus or (host.gpus if host else ()), glyphs)
    if not lines:
        lines = _named("GPUs", (host.without_gpus if host else "") or "unknown", width)
        lines += _hints(_BY_CALLBACK, width)
    if host is None:
        return [*lines, [], *_named("Host", _OVER if run.ended_at else _ELSEWHERE, width)]
    return [
        *lines,
        [],
        *_processes(host),
        [],
        *_memory(host, glyphs),
        [],
        *_disk(host.disk, now, width, glyphs),
    ]


def _gpus(gpus: Sequence[GpuView], glyphs: Glyphs) -> list[Line]:
    if not gpus:
        return []
    heads = f"{'busy':>6}{'memory':>22}{'temp':>7}{'power':>8}{'ECC':>5}  held down by"
    return [
        [StyledSpan(f" {'GPU':<10}", "title"), StyledSpan(heads, "dim")],
        *(_gpu(gpu, glyphs) for gpu in gpus),
    ]


def _gpu(gpu: GpuView, glyphs: Glyphs) -> Line:
    values = gpu.values
    busy, hot = values.get("gpu_utilization_ratio"), values.get("gpu_temperature_celsius")
    power, errors = values.get("gpu_power_watts"), values.get("gpu_ecc_errors_total")
    used, total = (values.get(f"gpu_memory_{part}_bytes") for part in ("used", "total"))
    memory = f"{byte_size(used)} of {byte_size(total)}" if total else byte_size(used)
    held = [name.removeprefix(_THROTTLED) for name in values if name.startswith(_THROTTLED)]
    held = [reason for reason in held if values[_THROTTLED + reason]]
    name = f"rank {gpu.rank}" if gpu.rank is not None else gpu.gpu
    return [
        StyledSpan(f" {name:<10}", "key"),
        StyledSpan(f"{_shown(busy, 100, ' %'):>6}{memory:>22}"),
        StyledSpan(f"{_shown(hot, 1, ' C'):>7}", "warning" if "thermal" in held else ""),
        StyledSpan(f"{_shown(power, 1, ' W'):>8}", "warning" if "power" in held else ""),
        StyledSpan(f"{_shown(errors, 1, ''):>5}", "error" if errors else ""),
        StyledSpan(f"  {', '.join(held)}", "warning"),
        StyledSpan(f"  {safe(gpu.name, glyphs)}", "dim"),
    ]


def _shown(value: float | None, factor: float, unit: str) -> str:
    return "-" if value is None else f"{value * factor:.0f}{unit}"


def _processes(host: HostView) -> Iterator[Line]:
    heads = f"{'pid':>9}{'cores':>8}{'memory':>12}  state"
    yield [StyledSpan(f" {'Process':<10}", "title"), StyledSpan(heads, "dim")]
    for each in host.processes:
        name = "main" if each.rank is None else f"rank {each.rank}"
        numbers = f"{each.pid:>9}{each.cores:>8.2f}{byte_size(each.resident_bytes):>12}"
        state = _STATES.get(each.state.upper(), each.state)
        style = "critical" if each.state in "TtZX" else ""
        yield [
            StyledSpan(f" {name:<10}", "key"),
            StyledSpan(numbers),
            StyledSpan(f"  {state}", style),
        ]


def _memory(host: HostView, glyphs: Glyphs) -> Iterator[Line]:
    total, free = host.memory_total_bytes, host.memory_available_bytes
    if total:
        yield _used("Memory", total - free, total, "used", glyphs)


def _disk(disk: DiskView | None, now: float, width: int, glyphs: Glyphs) -> Iterator[Line]:
    if disk is None:
        return
    yield _used("Disk", disk.total_bytes - disk.free_bytes, disk.total_bytes, "used", glyphs)
    yield [StyledSpan(" " * 11), StyledSpan(fit(safe(disk.folder, glyphs), width - 12, glyphs))]
    if disk.full_at is None:
        yield from _hints(_NO_END, width)
        return
    left = max(disk.full_at - now, 0.0)
    text = f"full in {whole_duration(left)} at the pace of the last checkpoints"
    yield [StyledSpan(" " * 11), StyledSpan(text, "warning" if left < _SOON_SECONDS else "")]


def _used(name: str, used: float, total: float, word: str, glyphs: Glyphs) -> Line:
    share = used / total if total else None
    text = f"  {byte_size(used)} of {byte_size(total)} {word}"
    return [StyledSpan(f" {name:<10}", "title"), *bar(share, _BAR, glyphs), StyledSpan(text)]


def _named(name: str, text: str, width: int) -> list[Line]:
    first, *rest = _hints(text, width)
    return [[StyledSpan(f" {name:<10}", "title"), *first[1:]], *rest]


def _hints(text: str, width: int) -> list[Line]:
    return [[StyledSpan(" " * 11), *line] for line in wrap(text, max(width - 12, 20), "dim")]


class HostPage(ScreenPage):
    """What the selected run uses of its host."""

    tab = "Host"

    def __init__(self, context: PageContext) -> None:
        super().__init__(context)
        self._lines: list[Line] = []
        self.rows = RowList(lambda index, width: self._lines[index], id="host-rows")

    def compose(self) -> ComposeResult:
        """Title, lines."""
        yield Painted(self._title)
        yield self.rows

    def look(self) -> None:
        """Show the last snapshot."""
        run, width = self._pages.chosen(), self.rows.size.width or self.size.width
        clock, glyphs = self._pages.clock(), self._pages.glyphs
        self._lines = [] if run is None else page_lines(run, clock, width, glyphs)
        self.rows.show(len(self._lines))
        self.query_one(Painted).refresh()

    def on_resize(self) -> None:
        """Wrap for the new width."""
        self.look()

    def _title(self, width: int, height: int) -> list[Line]:
        run = self._pages.chosen()
        if run is None:
            return [[StyledSpan(" no run", "dim")]]
        line = [StyledSpan(f" {safe(run.name, self._pages.glyphs)}", "title")]
        if run.host is not None:
            age = whole_duration(max(self._pages.clock() - run.host.at, 0.0))
            name = safe(run.host.host, self._pages.glyphs)
            line.append(StyledSpan(f"  on {name}, seen {age} ago", "dim"))
        return [line]
