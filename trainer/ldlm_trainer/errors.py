"""What the trainer refuses: a setting or an input that its user can correct."""


class TrainerError(Exception):
    """A setting, a data set or a machine that a training cannot begin with.

    `what` says the mistake, `where` its place (setting, file), `remedy` how to correct it; the last
    two may be "". `str()` joins them to one line.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.remedy}" if self.remedy else text
