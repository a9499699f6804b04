"""The settings and what they mean; `Settings(...)` reads neither environment nor file."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ldlm_monitor.config.fields import (
    Discovery,
    Hosts,
    Labels,
    Listen,
    Name,
    Paths,
    Patterns,
    PhaseLimits,
    Seconds,
    SecondsFromZero,
    Section,
    UserPath,
    address,
)
from ldlm_monitor.config.receivers import (
    AlertmanagerSettings,
    Apprise,
    Attach,
    HeartbeatSettings,
    Slack,
    WebhookSettings,
)

ENV_PREFIX = "LDLM_"
FailOn: TypeAlias = Literal["critical", "error", "warning", "never"]


class Stall(Section):
    """How long a pause may last before the run counts as stalled."""

    floor_seconds: Seconds = Field(
        default=30, description="No learned limit is shorter than this.", examples=[30]
    )
    startup_seconds: Seconds = Field(
        default=600,
        description="The limit while the first steps have not yet taught a pace.",
        examples=[600],
    )
    limit_seconds: PhaseLimits = Field(
        default={},
        description="Your own limit for a phase (`starting`, `running`, `evaluating`, "
        "`checkpointing`); it replaces the learned one.",
        examples=[{"evaluating": 900}],
    )


class Probe(Section):
    """What is asked of this host when a run stalls; nothing is changed on it."""

    enabled: bool = Field(
        default=True,
        description="Look at a stalled run's processes, control groups, flight recorder dumps "
        "and NCCL's RAS on this host.",
        examples=[False],
    )


class Settings(BaseSettings):
    """The monitor's settings. Durations are seconds."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="_",
        env_nested_max_split=1,
        env_ignore_empty=True,
        enable_decoding=False,
        hide_input_in_errors=True,  # a secret may be among them
    )

    files: Patterns = Field(
        default=(),
        description="Files, globs and folders to follow.",
        examples=[["train_logs/*.log"]],
    )
    run: Name | None = Field(
        default=None,
        description="Name of the run, instead of the one found.",
        examples=["gpt2-small"],
    )
    rules: Paths = Field(
        default=(),
        description="Rule files, instead of the packaged ones.",
        examples=[["rules/mine.yml"]],
    )
    formats: Paths = Field(
        default=(),
        description="Format files, beside the packaged ones.",
        examples=[["formats/mine.yml"]],
    )
    listen: Listen = Field(
        default="127.0.0.1:9847",
        description="HOST:PORT of `/metrics`. If the default is taken, the next free port serves.",
        examples=["127.0.0.1:9847"],
    )
    file_sd: Discovery | None = Field(
        default=None,
        description="A file (`.json`) for Prometheus' `file_sd_configs` that says where this "
        "monitor is scraped: written at the start, taken away at the end.",
        examples=["/shared/file_sd/node17.json"],
    )
    external_labels: Labels = Field(
        default={},
        description="Labels of this monitor as a whole, such as `cluster` and `job_id`: Prometheus "
        "puts them on its series where it finds it by `file_sd`, and Alertmanagers get them with "
        "every alert.",
        examples=[{"cluster": "a", "job_id": "4711"}],
    )
    allowed_hosts: Hosts = Field(
        default=(),
        description="Names by which requests over plain HTTP may ask this monitor, beside "
        "`localhost`, this machine's name and addresses. On loopback no other name is answered; "
        "elsewhere any is, unless some are named here.",
        examples=[["monitor.internal"]],
    )
    web_config: UserPath | None = Field(
        default=None,
        description="A web configuration file as Prometheus has it: TLS, users, bearer tokens.",
        examples=["web-config.yml"],
    )
    state_dir: UserPath | None = Field(
        default=None,
        description="Folder of what must survive a restart; by default one per set of inputs "
        "under `$XDG_STATE_HOME/ldlm-monitor/`.",
        examples=["/var/lib/ldlm-monitor"],
    )
    interval: Seconds = Field(
        default=10, description="Seconds between two status lines.", examples=[10]
    )
    evaluation_interval: Seconds = Field(
        default=5, description="Seconds between two evaluations of the rules.", examples=[5]
    )
    headless: bool = Field(
        default=False, description="Run as a daemon, also on a terminal.", examples=[True]
    )
    ascii: bool = Field(
        default=False,
        description="Draw the screen in ASCII; done anyway where the locale is not UTF-8.",
        examples=[True],
    )
    web: bool = Field(
        default=False,
        description="Serve the screen to browsers (extra `web`).",
        examples=[True],
    )
    web_listen: Listen = Field(
        default="127.0.0.1:9848",
        description="HOST:PORT for browsers. If the default is taken, the next free port serves.",
        examples=["127.0.0.1:9848"],
    )
    record: UserPath | None = Field(
        default=None,
        description="Keep what the screen is fed in this new file, for `replay --tui`.",
        examples=["/var/tmp/night.ldlm"],
    )
    companions: bool = Field(
        default=True, description="Follow also what belongs to a followed log.", examples=[False]
    )
    once: bool = Field(default=False, description="Read to the end, report, exit.", examples=[True])
    fail_on: FailOn = Field(
        default="critical",
        description="The severity from which the exit code is 3.",
        examples=["error"],
    )
    history_mib: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=8,
        description="MiB of a log that are read when the daemon first sees it, its start and its "
        "end (eight times as many of JSON lines). 0: everything.",
        examples=[64],
    )
    stall: Stall = Stall()
    probe: Probe = Probe()
    end_series_after_seconds: SecondsFromZero = Field(
        default=900,
        description="Seconds that an ended run's series stay in `/metrics`.",
        examples=[900],
    )
    slack: Slack = Slack()
    alertmanager: AlertmanagerSettings = AlertmanagerSettings()
    webhook: WebhookSettings = WebhookSettings()
    apprise: Apprise = Apprise()
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    attach: Attach = Attach()
    post_interval_seconds: SecondsFromZero = Field(
        default=1,
        description="Each channel of people (Slack, Apprise) gets at most one post in this time. "
        "0: as many as there are.",
        examples=[2],
    )
    bell: bool = Field(
        default=True,
        description="Ring the terminal's bell where a critical alert fires; screen only.",
        examples=[False],
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Form of the messages on stderr.", examples=["json"]
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least level that is written.", examples=["debug"]
    )

    @property
    def history_bytes(self) -> int | None:
        """How much of a log is read at first; None: all."""
        return int(self.history_mib * 1024 * 1024) or None

    @property
    def listen_is_explicit(self) -> bool:
        """Whether someone asked for this address, so that no other may take its place."""
        return "listen" in self.model_fields_set

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host (brackets of an IPv6 address removed) and port."""
        return address(self.listen)

    @property
    def web_address(self) -> tuple[str, int]:
        """The same for browsers."""
        return address(self.web_listen)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The arguments alone: `load` reads the other sources, so that errors can name them."""
        return (init_settings,)


SECTIONS: Final[dict[str, type[Section]]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}
"""The tables, by name."""


def is_secret(field: FieldInfo) -> bool:
    """Whether a value of that setting must not be repeated, nor stand in the file."""
    return "SecretStr" in str(field.annotation)
