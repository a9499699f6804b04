"""The settings, each with its meaning below; `Settings(...)` reads neither environment nor file.

The reason of a default is a comment above it; the text below it is part of the documentation.
"""

from collections import Counter
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

from pydantic import Field, SecretStr, create_model, field_validator
from pydantic.fields import FieldInfo

from ldlm_monitor.base.points import RETENTION
from ldlm_monitor.base.setting_types import (
    BaseUrl,
    Discovery,
    Hosts,
    Labels,
    Listen,
    Name,
    Paths,
    Patterns,
    Seconds,
    SecondsFromZero,
    Section,
    UserPath,
    from_text,
    parse_json,
)
from ldlm_monitor.base.text.addresses import address
from ldlm_monitor.judge.run.stall import Stall
from ldlm_monitor.screen.look import Look
from ldlm_monitor.service.config.expectations import Expectation
from ldlm_monitor.service.notify.receiver import ReceiverSettings
from ldlm_monitor.service.notify.receivers import RECEIVERS
from ldlm_monitor.service.state.secret_files import secret_of

FailOn: TypeAlias = Literal[
    "critical", "error", "warning", "never"
]  # the least severity for which the exit code is 3; never: none


class Probe(Section):
    """The inspection of this host when a run stalls; it changes nothing."""

    enabled: bool = True
    """Look at a stalled run's processes, control groups, flight recorder dumps and NCCL's RAS on
    this host."""


class Attach(Section):
    """How `attach` authenticates itself, and which servers it trusts."""

    token: SecretStr | None = Field(default=None, examples=["..."])
    """The bearer token for `attach`. A secret: refused in the configuration file."""
    token_file: UserPath | None = Field(default=None, examples=["attach.token"])
    """A file that holds the bearer token for `attach`."""
    username: str | None = Field(default=None, examples=["ada"])
    """The user for `attach`, with a password."""
    password_file: UserPath | None = Field(default=None, examples=["attach.password"])
    """A file that holds that user's password."""
    ca_file: UserPath | None = Field(default=None, examples=["ca.pem"])
    """Certificates (PEM) that `attach` trusts, instead of the system's."""
    cert_file: UserPath | None = Field(default=None, examples=["client.pem"])
    """The certificate (PEM) that `attach` presents where the monitor requires one."""
    key_file: UserPath | None = Field(default=None, examples=["client.key"])
    """The key of that certificate."""

    def bearer(self) -> str | None:
        """The token; None if none is set. Raises ConfigError if its file is unusable."""
        return secret_of(self.token_file, "attach.token_file", "the token", self.token)

    def password(self) -> str | None:
        """The password; None if none is set. Raises ConfigError if its file is unusable."""
        return secret_of(self.password_file, "attach.password_file", "the password")


Model = TypeVar("Model", bound=Section)


def with_receivers(model: type[Model]) -> type[Model]:
    """The model with a table for each kind of receivers, by its name."""
    tables = {kind.table: (kind, kind.model_construct()) for kind in RECEIVERS}
    own = {"__base__": model, "__module__": model.__module__, "__doc__": model.__doc__}
    made: type[Model] = create_model(model.__name__, **own, **tables)  # type: ignore[call-overload]
    return made


@with_receivers
class Settings(Section, defer_build=True):  # once, with the tables of `with_receivers`
    """The monitor's settings. Durations are seconds."""

    files: Patterns = Field(default=(), examples=[["train_logs/*.log"]])
    """Files, globs and folders to follow."""
    run: Name | None = Field(default=None, examples=["gpt2-small"])
    """Name of the run, instead of the name found in logs and paths."""
    rules: Paths = Field(default=(), examples=[["rules/mine.yml"]])
    """Rule files, instead of the packaged ones."""
    formats: Paths = Field(default=(), examples=[["formats/mine.yml"]])
    """Format files, beside the packaged ones."""
    expect: Annotated[tuple[Expectation, ...], from_text(parse_json)] = Field(
        default=(), examples=[[{"name": "checkpoint", "line": "saved checkpoint", "every": "30m"}]]
    )
    """Lines that must come in time, each a table `[[expect]]`."""

    @field_validator("expect")
    @classmethod
    def _named_once(cls, expected: tuple[Expectation, ...]) -> tuple[Expectation, ...]:
        twice = Counter(each.name for each in expected).most_common(1)
        if twice and twice[0][1] > 1:
            raise ValueError(f"should have one {twice[0][0]}: a name is an alert's label")
        return expected

    listen: Listen = "127.0.0.1:9847"  # a choice: this machine alone, and a port that few use
    """HOST:PORT of `/metrics`. If the default is taken, the next free port serves."""
    file_sd: Discovery | None = Field(default=None, examples=["/shared/file_sd/node17.json"])
    """A file (`.json`) for Prometheus' `file_sd_configs` that says where this monitor is scraped:
    written at the start, removed at the end."""
    external_labels: Labels = Field(default={}, examples=[{"cluster": "a", "job_id": "4711"}])
    """Labels of this monitor as a whole, such as `cluster` and `job_id`. Prometheus adds them to
    this monitor's series if `file_sd` is set, and Alertmanagers get them with every alert."""
    external_url: BaseUrl | None = Field(default=None, examples=["https://monitor.internal:9847"])
    """The address under which people reach this monitor, perhaps behind a proxy, with its path if
    it has one. Messages then link to the page of their run."""
    allowed_hosts: Hosts = Field(default=(), examples=[["monitor.internal"]])
    """Host names that requests over plain HTTP may carry, beside `localhost`, this machine's name
    and addresses. On loopback, requests for other names are refused; elsewhere only if some names
    are listed here."""
    web_config: UserPath | None = Field(default=None, examples=["web-config.yml"])
    """A web configuration file in Prometheus' format: TLS, users, bearer tokens."""
    state_dir: UserPath | None = Field(default=None, examples=["/var/lib/ldlm-monitor"])
    """Folder of what must survive a restart; by default one per set of inputs under
    `$XDG_STATE_HOME/ldlm-monitor/`."""
    interval: Seconds = 10  # a choice: less floods the output, more hides progress
    """Seconds between two status lines."""
    # A choice: sooner costs CPU, later alerts late. Prometheus' example has 15 s, over a network.
    evaluation_interval: Seconds = 5
    """Seconds between two evaluations of the rules."""
    promql_experimental: bool = False
    """Accept PromQL functions that Prometheus 3 has only with
    `--enable-feature=promql-experimental-functions`, in rules and queries."""
    headless: bool = False
    """Run as a daemon, without the screen, also on a terminal."""
    ascii: bool = False
    """Draw the screen in ASCII; done anyway where the locale is not UTF-8."""
    web: bool = False
    """Serve the screen to browsers (extra `web`)."""
    web_listen: Listen = "127.0.0.1:9848"  # the port after that of `listen`
    """HOST:PORT for browsers. If the default is taken, the next free port serves."""
    mcp: bool = False
    """Answer agents by the Model Context Protocol below `/mcp` (extra `mcp`)."""
    record: UserPath | None = Field(default=None, examples=["/var/tmp/night.ldlm"])
    """Record the monitor's input in this new file, for `replay --tui`."""
    companions: bool = True
    """Follow also the files that belong to the launch of a followed log."""
    join: bool = True
    """Make one run of the files that the ranks and nodes of one launch wrote; otherwise each such
    file is a run of its own."""
    once: bool = False
    """Read to the end, report, exit."""
    fail_on: FailOn = Field(default="critical", examples=["error"])
    """The least severity of an alert for which the exit code is 3; `never`: none."""
    gpu_hour_price: float | None = Field(default=None, ge=0, allow_inf_nan=False, examples=[2.5])
    """The price of one GPU for an hour, in any currency: reports then give what a run cost."""
    # A choice: less loses history, more starts later. A launch's settings are in the first MiB.
    history_mib: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 8
    """MiB of a log that are read when the daemon first sees it, its start and its end (eight times
    as many of JSON lines). 0: everything."""
    stall: Stall = Stall()
    probe: Probe = Probe()
    # A choice: three of Prometheus' lookbacks; less hides the end on dashboards, more looks alive.
    end_series_after_seconds: SecondsFromZero = 900
    """Seconds that an ended run's series stay in `/metrics`."""
    # A choice: some 0.3 MB each; less hides a night of short runs, more is memory.
    ended_runs_kept: int = Field(default=1_000, ge=0)
    """Runs whose series have ended that are shown yet, the last ones of them; the daemon forgets
    others until it is started again, and `report` reads their logs."""
    retention_seconds: SecondsFromZero = RETENTION
    """Seconds that the samples of all series are kept in memory, for `/api/v1/query_range` and the
    screen's history; as long as the rules look back at least."""
    attach: Attach = Attach()
    # Slack's limit: one message per second and channel (https://docs.slack.dev/apis/web-api/rate-limits/).
    post_interval_seconds: SecondsFromZero = 1
    """Each channel of people (Slack, Apprise) gets at most one post in this many seconds.
    0: no limit."""
    bell: bool = True
    """Ring the terminal's bell where a critical alert fires; screen only."""
    screen: Look = Look()
    log_format: Literal["text", "json"] = "text"
    """Form of the messages on stderr."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least level of a message that is written to stderr."""

    @property
    def receivers(self) -> tuple[ReceiverSettings, ...]:
        """The table of each kind of receivers."""
        return tuple(getattr(self, kind.table) for kind in RECEIVERS)

    @property
    def history_bytes(self) -> int | None:
        """Bytes of a log that are read when the daemon first sees it; None for all."""
        return int(self.history_mib * 1024 * 1024) or None

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host (brackets of an IPv6 address removed) and port."""
        return address(self.listen)


SECTIONS: Final[dict[str, type[Section]]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}
"""Name of each table of the configuration file to its model."""


def is_secret(field: FieldInfo) -> bool:
    """Whether a setting is a secret: errors do not repeat it, the file must not contain it."""
    return "SecretStr" in str(field.annotation)
