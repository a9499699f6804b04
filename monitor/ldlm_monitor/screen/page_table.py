"""The table of pages. The bar, the keys 1 to 9, the help and the palette are made of it."""

from ldlm_monitor.screen.alert_page import AlertsPage
from ldlm_monitor.screen.host_page import HostPage
from ldlm_monitor.screen.log_page import LogPage
from ldlm_monitor.screen.overview import OverviewPage
from ldlm_monitor.screen.run_page import RunPage
from ldlm_monitor.screen.screen_page import ScreenPage
from ldlm_monitor.screen.timeline import EventsPage

PAGES: tuple[type[ScreenPage], ...] = (
    OverviewPage,
    RunPage,
    AlertsPage,
    LogPage,
    EventsPage,
    HostPage,
)
"""The pages, in the order of their keys."""
