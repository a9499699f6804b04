"""Charts of quantities over steps, as SVG for pages and files, and as PNG."""

from ldlm_monitor.charts.chart import Chart, Line, Mark, bucketed
from ldlm_monitor.charts.files import write
from ldlm_monitor.charts.svg import GUTTER, STYLE, svg

__all__ = ["GUTTER", "STYLE", "Chart", "Line", "Mark", "bucketed", "svg", "write"]
