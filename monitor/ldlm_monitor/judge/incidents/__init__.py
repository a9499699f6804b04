"""Each failure becomes one incident, with the rank and the line of its root cause.

`Incidents` processes events and alerts of all runs in order, and returns `snapshot.IncidentView`.
"""

from ldlm_monitor.judge.incidents.grouping import Incidents
from ldlm_monitor.judge.incidents.roster import RunFacts

__all__ = ["Incidents", "RunFacts"]
