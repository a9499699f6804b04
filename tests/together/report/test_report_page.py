"""The page as people with a browser, a printer, a keyboard or a screen reader meet it."""

import base64
import hashlib
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest

from ldlm_monitor.service.cli import main

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples/train_logs").glob("*.log"))
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
AXE = Path(os.environ.get("LDLM_AXE", "axe-is-not-given"))
"""axe.min.js of npm's axe-core, which is too large to keep for one test."""
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `one.html`, the page of a crashed run, and `all.html`, that of three."""
    folder = tmp_path_factory.mktemp("pages")
    for name, logs in (("one", EXAMPLES[-1:]), ("all", EXAMPLES)):
        assert main(["report", "-o", str(folder / f"{name}.html"), *map(str, logs)]) == 3
    return folder


def chromium(folder: Path, *arguments: str) -> str:
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu"),
            *(f"--user-data-dir={folder / 'profile'}", "--allow-file-access-from-files"),
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def said_by(
    folder: Path, page: str, script: str, *arguments: str, width: int = 1200, head: str = ""
) -> str:
    """What `script` returns, run beside the page `p` in a frame as wide as a phone or a shared."""
    (folder / "frame.html").write_text(
        f'<iframe src="{page}" style="width:{width}px;height:900px;border:0"></iframe><script>'
        "onload=async()=>{const w=document.querySelector('iframe').contentWindow,p=w.document;"
        f"document.title=await(async()=>{{{script}}})()}}</script>{head}",
        encoding="utf-8",
    )
    flags = (f"--window-size={width + 40},1000", "--virtual-time-budget=20000", "--dump-dom")
    shown = chromium(folder, *flags, *arguments, (folder / "frame.html").as_uri())
    title = re.search("<title>(.*?)</title>", shown, re.DOTALL)
    assert title is not None, shown[:500]
    return title[1]


class Outline(HTMLParser):
    """Headings by level, and elements that lack what a screen reader needs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.levels: list[int] = []
        self.counts: dict[str, int] = {}
        self.lacking: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))
        needed = {"html": "lang", "th": "scope"}.get(tag)
        if tag == "svg" and given.get("class") == "chart":
            needed = "aria-label"
        if needed is not None and not given.get(needed):
            self.lacking.append(f"{tag} without {needed}")


@pytest.mark.parametrize("name", ["one.html", "all.html"])
def test_headings_leave_no_level_out_and_tables_name_their_rows_and_columns(
    pages: Path, name: str
) -> None:
    outline = Outline((pages / name).read_text("utf-8"))
    assert outline.levels[0] == 1
    assert outline.levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(outline.levels))
    assert outline.lacking == []
    assert outline.counts["table"] == outline.counts["caption"] > 0


def luminance(color: str) -> float:
    """https://www.w3.org/TR/WCAG22/#dfn-relative-luminance"""
    digits = color.lstrip("#")
    wide = digits if len(digits) == 6 else "".join(2 * each for each in digits)
    parts = [int(wide[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def palettes(package: str, name: str) -> list[dict[str, str]]:
    """The colours of a style sheet: those of light pages, then those of dark ones."""
    css = (files(package) / name).read_text("utf-8")
    blocks = re.findall(r"(?::root|\.chart) \{ ([^}]*--text[^}]*)\}", css)
    return [dict(re.findall(r"--([a-z0-9]+):(#[0-9a-f]+)", block)) for block in blocks]


@pytest.mark.parametrize("is_dark", [False, True])
def test_every_text_has_the_contrast_of_wcag_aa(is_dark: bool) -> None:
    page = palettes("ldlm_monitor.finished.report", "page.css")[is_dark]
    for ground in ("ground", "card"):
        for color in page.keys() - {"ground", "card", "line"}:
            assert contrast(page[color], page[ground]) >= 4.5, (color, ground)
    runs = palettes("ldlm_monitor.service.serve", "live.css")[is_dark]
    for color in runs.keys() - {"ground", "card", "line"}:
        for ground in ("ground", "card"):
            assert contrast(runs[color], runs[ground]) >= 4.5, (color, ground)
    chart = palettes("ldlm_monitor.finished", "chart.css")[is_dark]
    assert chart["ground"] == page["card"]
    for color in chart.keys() - {"grid", "ground"}:  # curves need 3.0, but legends are text
        assert contrast(chart[color], chart["ground"]) >= 4.5, color


def test_only_the_pages_own_script_may_run(pages: Path) -> None:
    text = (pages / "one.html").read_text("utf-8")
    (script,) = re.findall("(?s)<script>(.*)</script>", text)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text


@pytest.mark.live
@in_browser
@pytest.mark.parametrize(("width", "dark"), [(400, True), (1200, False)])
def test_a_browser_shows_the_page_without_scrolling_sideways(
    pages: Path, width: int, dark: bool
) -> None:
    measure = """const charts=[...p.querySelectorAll('svg.chart')].filter(c=>c.checkVisibility());
      return [p.documentElement.scrollWidth,charts.length,
      Math.min(...charts.map(c=>c.getBoundingClientRect().height)),
      w.getComputedStyle(p.body).backgroundColor].join('/')"""
    color = ("--blink-settings=preferredColorScheme=0",) if dark else ()
    across, count, height, ground = said_by(pages, "all.html", measure, *color, width=width).split(
        "/"
    )
    assert int(across) <= width
    assert int(count) == 2  # the losses of the two that need someone; the rest is folded
    assert float(height) > 150
    assert ground == ("rgb(13, 17, 22)" if dark else "rgb(244, 246, 248)")


@pytest.mark.live
@in_browser
def test_a_chart_is_read_and_enlarged_by_pointer_and_by_keys(pages: Path) -> None:
    act = """const plot=p.querySelector('[data-plot]'),chart=plot.querySelector('svg');
      const box=chart.getBoundingClientRect(),said=()=>plot.querySelector('output').textContent;
      const move=(type,share)=>chart.dispatchEvent(new w.PointerEvent(type,
        {clientX:box.left+share*box.width,bubbles:true}));
      const key=(name)=>plot.dispatchEvent(new w.KeyboardEvent('keydown',{key:name}));
      const view=()=>chart.querySelector('svg').getAttribute('viewBox');
      const found=[];
      move('pointermove',0.5);found.push(said());
      key('ArrowRight');found.push(said());
      move('pointerdown',0.25);move('pointermove',0.75);move('pointerup',0.75);found.push(view());
      found.push([...chart.querySelectorAll('.step')].map(t=>t.textContent).join(' '));
      found.push(getComputedStyle(chart.querySelector('[data-x]')).display);
      key('0');found.push(view());
      found.push(plot.tabIndex,plot.querySelectorAll('button').length);
      return found.join('/')"""
    assert said_by(pages, "one.html", act).split("/") == [
        *("step 59: 2.52", "step 60: 2.0559", "250 0 500 1000", "30 40 50 60 70 80", "none"),
        *("0 0 1000 1000", "0", "3"),
    ]


@pytest.mark.live
@in_browser
@pytest.mark.parametrize(("name", "most"), [("one", 2), ("all", 4)])
def test_the_page_prints_on_few_sheets(pages: Path, name: str, most: int) -> None:
    """One or two for each run that needs someone; healthy ones are in the table of the first."""
    printed = pages / f"{name}.pdf"
    chromium(pages, f"--print-to-pdf={printed}", (pages / f"{name}.html").as_uri())
    sheets = len(re.findall(rb"/Type /Page\b", printed.read_bytes()))
    assert 1 <= sheets <= most


@pytest.mark.live
@in_browser
@pytest.mark.skipif(not AXE.is_file(), reason="LDLM_AXE names no axe.min.js (npm install axe-core)")
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["one.html", "all.html"])
def test_axe_finds_nothing(pages: Path, name: str, dark: bool) -> None:
    """Without the page's policy, which would refuse axe, and with everything opened."""
    text = re.sub("<meta http-equiv[^>]*>", "", (pages / name).read_text("utf-8"))
    text = text.replace("<details class=part>", "<details class=part open>")
    (pages / "axe.html").write_text(
        text.replace("</head>", f"<script>{AXE.read_text('utf-8')}</script></head>"), "utf-8"
    )
    run = """const {violations,passes}=await w.axe.run(p,{runOnly:['wcag2a','wcag2aa','wcag21a',
      'wcag21aa','wcag22aa','best-practice']});
      const broken=violations.map(v=>v.id+': '+v.nodes.map(n=>n.html).join(' '));
      return [passes.length>10,...broken].join(' ')"""
    color = ("--blink-settings=preferredColorScheme=0",) if dark else ()
    assert said_by(pages, "axe.html", run, *color) == "true"
