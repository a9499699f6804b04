"""One failure, one incident: which rank and which line came first, and what only followed.

`Incidents` is given events and alerts of all runs in the order in which they are judged;
`view.IncidentView` is what it says of them. Reads no clock: times are arguments.
"""

from ldlm_monitor.incidents.book import Incidents
from ldlm_monitor.incidents.facts import Standing

__all__ = ["Incidents", "Standing"]
