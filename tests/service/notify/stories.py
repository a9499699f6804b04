"""What failed, as messages show it, and messages as Slack gets them."""

from ldlm_monitor.service.notify.content import news_of, whole_of
from ldlm_monitor.service.notify.message import Message, Notification, Story, message_of
from ldlm_monitor.service.notify.slack_message import Block, drawn

OUT_OF_MEMORY = Story(
    id="r1/1",
    title="CUDA out of memory on rank 3 (gpu04) -> timeout on 7 ranks at step 120",
    cause="CUDA out of memory on rank 3",
    confidence="confirmed",
    why=("its traceback", "its peers lost it"),
    excerpt=(("train.log:17", "torch.OutOfMemoryError: CUDA out of memory"),),
    action="Lower BATCH_SIZE.",
)


def slack_message(each: Notification) -> tuple[str, list[Block]]:
    """One alert alone."""
    return drawn(news_of(message_of(each)))


def group_message(message: Message) -> tuple[str, list[Block]]:
    """A group as it is now."""
    return drawn(whole_of(message))


def news_message(message: Message) -> tuple[str, list[Block]]:
    """What is new in a group, or still fires."""
    return drawn(news_of(message))
