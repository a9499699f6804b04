"""Starts the daemon: builds its parts, starts their threads, and runs the pump's loop."""

import logging
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

from ldlm_monitor.base.errors import PromRulesError, UsageError
from ldlm_monitor.base.names import Metric
from ldlm_monitor.base.points import Point
from ldlm_monitor.base.queries import Source
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.base.text.addresses import is_loopback
from ldlm_monitor.base.text.lines import StatusLines
from ldlm_monitor.base.text.sanitize import redact
from ldlm_monitor.finished.playback.recording import Recorder
from ldlm_monitor.host.probe.host import HostProbe
from ldlm_monitor.judge.core.assemble import rules_of
from ldlm_monitor.judge.core.rule_warnings import warnings_of
from ldlm_monitor.logs.source.notices import Journal
from ldlm_monitor.logs.source.wake import Waker
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.dispatcher import Dispatcher
from ldlm_monitor.service.daemon.judging_clock import JudgingClock
from ldlm_monitor.service.daemon.listener import listen, names_for, url_of, write_file_sd
from ldlm_monitor.service.daemon.local_source import LocalSource
from ldlm_monitor.service.daemon.pump import CutShort, Pump
from ldlm_monitor.service.daemon.pump_calls import PumpCalls
from ldlm_monitor.service.daemon.stall_probe import Probing
from ldlm_monitor.service.daemon.stop_signals import Signals
from ldlm_monitor.service.notify.courier import Sender, stop_all
from ldlm_monitor.service.notify.incident_log import IncidentLog
from ldlm_monitor.service.notify.loss_picture import picture_of
from ldlm_monitor.service.notify.outbox import Outbox
from ldlm_monitor.service.notify.receiver import DaemonParts, MessageReceiver, Receiver
from ldlm_monitor.service.notify.receivers import RECEIVERS, couriers, receivers_of
from ldlm_monitor.service.notify.silences import Silences
from ldlm_monitor.service.serve import Gate, RunPage, Server, Site
from ldlm_monitor.service.serve.metrics import families
from ldlm_monitor.service.serve.prometheus import PrometheusApi
from ldlm_monitor.service.serve.site import Mounted
from ldlm_monitor.service.state.state_dir import StateDir, default_state_dir
from ldlm_monitor.service.state.state_store import StateStore

log = logging.getLogger(__name__)


def run(
    settings: Settings,
    load: Callable[[], Settings],
    signals: Signals,
    opened: Callable[[Source, str], None] = lambda source, url: None,
    *,
    page: RunPage = lambda snapshot, run: None,
) -> Snapshot:
    """Follow the files until `signals` ends it; return the last snapshot.

    `load` reads the settings again for a reload. `opened` is called with the screen's source and
    the daemon's URL once it serves. `page` makes a run's page. Raises `UsageError` if settings or
    port cannot be used, or if a daemon on the same inputs runs already.
    """
    with ExitStack() as stack:
        _raise_descriptor_limit()
        receivers = receivers_of(settings.receivers)
        of_messages = [each for each in receivers if isinstance(each, MessageReceiver)]
        gate = Gate(settings.web_config)
        wanted = settings.state_dir or default_state_dir(settings.files, Path.cwd())
        state = stack.enter_context(closing(StateDir(wanted)))
        silences = stack.enter_context(closing(Silences(state.path / "silences.sqlite")))
        policies = {each.name: each.policy for each in of_messages}
        outbox = Outbox(state.path / "outbox.sqlite", policies, silences)
        stack.callback(outbox.close)
        # Started before the logs are read again, which may take long: waiting messages go first.
        posting = list(couriers(of_messages, outbox, settings.post_interval_seconds))
        sending: list[Sender] = []
        stack.callback(lambda: stop_all(sending, signals.send_seconds))
        _start(posting, sending)
        store = stack.enter_context(closing(StateStore(state.path / "ledger.sqlite")))
        journal = Journal()
        waker = stack.enter_context(closing(Waker(journal)))
        pump = Pump(
            settings,
            outbox,
            store,
            Dispatcher(
                outbox,
                [each.name for each in of_messages],
                silences,
                posting,
                prints=not signals.has_screen,
                external_url=settings.external_url,
                incident_log=_incident_log(settings, outbox, receivers),
            ),
            waker,
            probing=_probing(settings, waker, stack),
            folder=state,
            recorder=_recorder(settings, stack),
            journal=journal,
            stopping=lambda: signals.stop,
        )
        draw = picture_of(lambda: pump.snapshot.curves)
        for each in of_messages:
            each.draw = draw
        stack.callback(pump.close)
        signals.wake = partial(waker.ring, Path())
        source = LocalSource(
            lambda: pump.pictures.preview,
            silences,
            _shown_inputs(settings),
        )

        calls = PumpCalls(pump, partial(waker.ring, Path()))
        experimental = settings.promql_experimental
        prometheus = PrometheusApi(calls.call, redact, experimental=experimental)
        mounted = _for_agents(source, prometheus) if settings.mcp else None

        def exported() -> Iterator[tuple[Metric, list[Point]]]:
            return families(
                pump.snapshot,
                notifications=outbox.counts(),
                deliveries=outbox.durations,
                behind=pump.behind(),
                free=state.free,
            )

        def bind(host: str, port: int) -> Server:
            site = Site(
                snapshot=lambda: pump.pictures.preview,
                families=exported,
                ready=lambda: pump.caught_up,
                redact=redact,
                reload=signals.ask_reload,
                silencing=silences,
                takes_commands=is_loopback(host),
                source=source,
                ask=calls.call,
                experimental=experimental,
                mounted=mounted,
                page=page,
                gate=gate,
                names=names_for(settings, host),
            )
            return Server(host, port, site)

        server = listen(settings, gate, bind)
        stack.callback(server.stop)
        url = url_of(settings.listen_address[0], server.port, encrypts=gate.encrypts)
        parts = DaemonParts(
            outbox=outbox,
            url=settings.external_url or url,
            labels=settings.external_labels,
            snapshot=lambda: pump.snapshot,
            turns=lambda: pump.turns,
            exported=exported,
        )
        _start((sender for each in receivers for sender in each.senders(parts)), sending)
        stack.callback(write_file_sd(settings, server.port, gate))
        try:
            _greet(settings, pump, state, url, receivers)
            waker.watch(pump.inputs.folders())
            opened(source, url)
            _follow(settings, pump, waker, calls, signals, load=load)
        except CutShort:
            log.info("ended before all was read: the next start reads the logs again")
    return pump.snapshot


def _shown_inputs(settings: Settings) -> str:
    first, *more = settings.files
    return f"{first} and {len(more)} more" if more else first


def _follow(
    settings: Settings,
    pump: Pump,
    waker: Waker,
    calls: PumpCalls,
    signals: Signals,
    *,
    load: Callable[[], Settings],
) -> None:
    clock, status = JudgingClock(), StatusLines()
    status_at = clock.now() + settings.interval

    def show_reading() -> None:
        nonlocal status_at
        now = time.time()
        if not signals.has_screen and now >= status_at:
            status_at = now + settings.interval
            for line in status.of(pump.pictures.preview, now):
                pump.dispatcher.print_line(line)

    pump.meanwhile = show_reading
    dirty: set[Path] | None = None
    while not (signals.stop or pump.ended):
        now = _judging_time(clock, pump)
        if signals.reload:
            signals.run_reload(partial(_reload, pump, load))
        pump.turn(dirty, now)
        calls.run()
        if not signals.has_screen and now >= status_at:
            status_at = now + settings.interval
            for line in status.of(pump.snapshot, now):
                pump.dispatcher.print_line(line)
        dirty = waker.wait(pump.pause(max(now, time.time() + clock.ahead)))
    if pump.caught_up:
        pump.turn(None, _judging_time(clock, pump))


def _judging_time(clock: JudgingClock, pump: Pump) -> float:
    """The time of a turn; time for which nothing could be seen is passed on to the monitor."""
    now = clock.now()
    pump.monitor.ahead = clock.ahead
    if clock.skipped:
        pump.leave_out(clock.skipped)
    return now


def _reload(pump: Pump, load: Callable[[], Settings]) -> str:
    try:
        settings = load()
        pump.reload(settings)
    except (UsageError, PromRulesError) as problem:
        log.error("%s; the settings and rules loaded before stay in use", problem)
        return str(problem)
    _warn_of_rules(settings)
    log.info("settings and rules were reloaded")
    return ""


def _warn_of_rules(settings: Settings) -> None:
    """Log what `rules check` warns of, such as an interval that is not followed."""
    every, own = settings.evaluation_interval, bool(settings.rules)
    for warning in warnings_of(rules_of(settings).rules, every) if own else ():
        log.warning("%s", warning)


def _raise_descriptor_limit() -> None:
    """Raise the soft limit of open files, which only protects programs that call select(2)."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # forbidden in a sandbox: fewer files stay open
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _start(threads: Iterable[Sender], sending: list[Sender]) -> None:
    for each in threads:
        each.start()
        sending.append(each)


def _incident_log(
    settings: Settings, outbox: Outbox, receivers: list[Receiver]
) -> IncidentLog | None:
    names = [each.name for each in receivers if each.gets_incidents]
    return IncidentLog(outbox, names, settings.external_url) if names else None


def _probing(settings: Settings, waker: Waker, stack: ExitStack) -> Probing | None:
    if not settings.probe.enabled:
        return None
    probing = Probing(HostProbe(), lambda: waker.ring(Path()))
    stack.callback(probing.close)
    return probing


def _for_agents(source: Source, prometheus: PrometheusApi) -> Mounted:
    from ldlm_monitor.service.mcp.agent_answers import Tools
    from ldlm_monitor.service.mcp.mcp_server import HttpMount

    return HttpMount(Tools(source, prometheus.query))


def _recorder(settings: Settings, stack: ExitStack) -> Recorder | None:
    if settings.record is None:
        return None
    recorder = Recorder(settings.record, _shown_inputs(settings), time.time())
    stack.callback(recorder.close)
    return recorder


def _greet(
    settings: Settings, pump: Pump, state: StateDir, url: str, receivers: list[Receiver]
) -> None:
    state.announce(url)
    if state.notice:
        log.error("%s", state.notice)
    log.info("metrics on %s/metrics, state in %s", url, state.path)
    for argument in pump.inputs.patterns.missing():
        log.info("%s: does not exist yet, waiting for it", argument)
    _warn_of_rules(settings)
    if not any(each.gets_alerts for each in receivers):
        how = RECEIVERS[0].how
        log.info("nobody will be notified, as no receiver is configured: set %s", how)
    sys.stdout.flush()
