"""`ldlm-monitor --install-completion`: the shell completes commands and flags."""

from cyclopts.completion.install import create_install_completion_command

from ldlm_monitor.service.cli.command_line import app

install_completion = create_install_completion_command(app.install_completion, add_to_startup=True)
