"""Charts of quantities over steps as SVG, for pages and files."""

from ldlm_monitor.analysis.charts.chart import Figure, FigureMark, Line, bucketed
from ldlm_monitor.analysis.charts.drawing import GUTTER, STYLE, page, svg

__all__ = ["GUTTER", "STYLE", "Figure", "FigureMark", "Line", "bucketed", "page", "svg"]
