"""What every page of the screen is: a widget that draws the last snapshot, under a title."""

from typing import ClassVar

from textual.containers import Vertical
from textual.widget import Widget

from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.screen.page_context import PageContext


class ScreenPage(Vertical):
    """One page. `tab`: its title in the bar, in the help and of its keys' identifiers.

    The widget's id is the title in lower case. The keys are made by `keys` with the same title.
    """

    tab: ClassVar[str]

    def __init__(self, context: PageContext) -> None:
        super().__init__(id=self.page_id())
        self._pages = context

    @classmethod
    def page_id(cls) -> str:
        """The name of the page in actions and in the style sheet."""
        return cls.tab.lower()

    @classmethod
    def badge(cls, snapshot: Snapshot) -> int:
        """A number to show beside the title in the bar; 0: none."""
        del snapshot
        return 0

    def look(self) -> None:
        """Show the last snapshot."""
        raise NotImplementedError

    def arrive(self) -> None:
        """Do what is due when the page is opened; by default nothing."""

    def take_focus(self) -> None:
        """Give the keys to the first widget that takes any."""
        next(each for each in self.query(Widget) if each.can_focus).focus()
