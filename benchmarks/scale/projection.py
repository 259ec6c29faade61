"""Project the seconds of a round of messages on a network.

Two projections, from the messages of a run without a network: their bytes, and the seconds that
their slots computed.

1. The rule of thumb: for each message of the slot that has most of them, two delays; the bytes of
   all messages over the bandwidth, in both directions; and the longest computation of a slot.
2. The replay: as (1), but message by message. The line of the driver sends one message after the
   other, a slot computes as soon as its message is there, while the line sends the next one, and
   replies queue for the line in the other direction. It is shorter than the rule where sending
   and computing overlap. In rounds of long tasks a slot that has done its own takes the last one
   of the slot that has most left, with the rows of its shard, as executors do.

What a stage takes beyond the replay without a network is the driver's own computing.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import fmean

from link import NO_NETWORK, Message, Network, Round, Stage


def by_slot(round_: Round) -> dict[int, list[Message]]:
    """Return the messages of each slot, in their order."""
    queues: dict[int, list[Message]] = defaultdict(list)
    for message in round_.messages:
        queues[message.slot].append(message)
    return queues


def rule_of_thumb(round_: Round, network: Network) -> float:
    """Return the seconds of messages and bytes, plus those of the longest computation."""
    queues = by_slot(round_).values()
    if not queues:
        return 0.0
    delays = 2 * network.delay * max(len(queue) for queue in queues)
    num_bytes = sum(message.sent + message.received for message in round_.messages)
    computing = max(sum(message.computing for message in queue) for queue in queues)
    return delays + num_bytes / network.bandwidth + computing


def replay(round_: Round, network: Network) -> float:
    """Return the seconds until the last reply."""
    following = _dealt(round_) if round_.stealing is None else _stolen(round_, round_.stealing)
    events = [(0.0, slot, "send") for slot in by_slot(round_)]
    current: dict[int, Message] = {}
    out_free = in_free = end = 0.0
    while events:
        now, slot, what = heapq.heappop(events)
        if what == "send":
            end = max(end, now)
            if (message := following(slot)) is None:
                continue
            current[slot] = message
            out_free = max(now, out_free) + message.sent / network.bandwidth
            heapq.heappush(events, (out_free + network.delay, slot, "compute"))
        elif what == "compute":
            heapq.heappush(events, (now + current[slot].computing, slot, "reply"))
        else:
            in_free = max(now, in_free) + current[slot].received / network.bandwidth
            heapq.heappush(events, (in_free + network.delay, slot, "send"))
    return end


def _dealt(round_: Round) -> Callable[[int], Message | None]:
    """Give every slot the messages that it had."""
    queues = {slot: iter(queue) for slot, queue in by_slot(round_).items()}
    return lambda slot: next(queues[slot], None)


def _stolen(round_: Round, shard_bytes: int) -> Callable[[int], Message | None]:
    """Give every slot its share of the tasks, and then those of others.

    The first task of a slot takes as long as it did, as it compiles; others take their mean.
    """
    recorded = by_slot(round_)
    slots = sorted(recorded)
    later = [message.computing for queue in recorded.values() for message in queue[1:]]
    mean = fmean(later) if later else 0.0
    sent = min(message.sent for message in round_.messages)
    received = round(fmean(message.received for message in round_.messages))
    left = dict.fromkeys(slots, 0)
    for number in range(len(round_.messages)):
        left[slots[number * len(slots) // len(round_.messages)]] += 1
    has_begun: set[int] = set()

    def following(slot: int) -> Message | None:
        owner = slot if left[slot] else max(slots, key=lambda other: left[other])
        if not left[owner]:
            return None
        left[owner] -= 1
        computing = mean if slot in has_begun else recorded[slot][0].computing
        has_begun.add(slot)
        return Message(slot, sent + (owner != slot) * shard_bytes, received, computing)

    return following


def driver_seconds(stage: Stage) -> float:
    """Return what a stage without a network took beyond its messages."""
    return stage.seconds - sum(replay(_as_it_was(each), NO_NETWORK) for each in stage.rounds)


def _as_it_was(round_: Round) -> Round:
    """Return a round whose messages are not dealt out anew."""
    return Round(round_.work, None, round_.messages)


def projected(stage: Stage, network: Network) -> Mapping[str, float]:
    """Return the seconds of a stage on a network by both projections."""
    driver = driver_seconds(stage)
    return {
        "rule": driver + sum(rule_of_thumb(round_, network) for round_ in stage.rounds),
        "replay": driver + sum(replay(round_, network) for round_ in stage.rounds),
    }


def in_rounds(stage: Stage) -> float:
    """Return the seconds of the rounds of a stage, without what the driver does in between."""
    return sum(round_.seconds for round_ in stage.rounds)


def on_its_own(stage: Stage, network: Network) -> float:
    """Return the replay of the rounds of a run on this network, with its own messages."""
    return sum(replay(_as_it_was(each), network) for each in stage.rounds)
