"""The table of commands. The command line, its help and its completion are made of it."""

COMMANDS: tuple[str, ...] = (
    "attach:attach",
    "bench:bench",
    "compare:compare",
    "setup:dashboards",
    "replay:demo",
    "doctor:doctor",
    "formats:formats",
    "query:goodput",
    "setup:init",
    "mcp:mcp",
    "notify:notify",
    "parse:parse",
    "query:query",
    "replay:replay",
    "report:report",
    "rules:rules",
    "run:run",
    "setup:service",
    "skill:skill",
    "run:stop",
    "wait_for:wait_for",
)
"""Of each command its module in this folder, and there the function, or an `App` of commands, that
has its name, with `_` for `-`. The module is imported when the command runs, or its help shown."""
NAMES = frozenset(each.partition(":")[2].replace("_", "-") for each in COMMANDS)
"""The names of the commands."""
