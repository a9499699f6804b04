"""`ldlm-monitor notify test`: a test message to every receiver that is configured."""

import time

from cyclopts import App

from ldlm_monitor.base.errors import ConfigError, DeliveryError, UsageError
from ldlm_monitor.service.cli.flags import SharedFlags, settings

notify = App(name="notify", help="Tries the receivers of alerts.")


@notify.command(name="test")
def send_test(*, flags: SharedFlags | None = None) -> int:
    """Sends a test message to every receiver, and prints whether each accepted it."""
    from ldlm_monitor.service.notify.receivers import RECEIVERS, receivers_of
    from ldlm_monitor.service.notify.trial import trial_at

    found = settings(flags)
    receivers = receivers_of(found.receivers)
    if not receivers:
        raise ConfigError(
            "no receiver is configured",
            where="notify test",
            remedy=f"set {'; or '.join(kind.how for kind in RECEIVERS)}",
        )
    trial = trial_at(time.time(), found.external_url, found.external_labels)
    problems = []
    for receiver in receivers:
        try:
            remark = receiver.send_test(trial)
        except DeliveryError as error:
            problems.append(f"{receiver.name}: {str(error).removeprefix(f'{receiver.name} ')}")
        else:
            more = f"; {remark}" if remark else ""
            print(f"{receiver.name}: accepted the test message{more}")
    if problems:
        raise UsageError(
            "; ".join(problems), where="notify test", remedy="check URL, token and network"
        )
    return 0
