"""Project the seconds of a round of messages on a network, with any number of cores.

Two projections, from the messages of a run without a network: their bytes, and the seconds that
their slots computed.

1. The rule of thumb: for each message of the slot that has most of them, two delays; the bytes of
   all messages over the bandwidth, in both directions; and the longest computation of a slot.
2. The replay: as (1), but message by message. The line of the driver sends one message after the
   other, a slot computes as soon as its message is there, while the line sends the next one, and
   replies queue for the line in the other direction. It is shorter than the rule where sending
   and computing overlap.

What a stage takes beyond the replay without a network is the driver's own computing.
"""

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence

from link import NO_NETWORK, Message, Network, Round, Stage

UNLIMITED = 10**9  # cores: every machine has its own


def by_slot(messages: Sequence[Message]) -> dict[int, list[Message]]:
    """Return the messages of each slot, in their order."""
    queues: dict[int, list[Message]] = defaultdict(list)
    for message in messages:
        queues[message.slot].append(message)
    return queues


def rule_of_thumb(round_: Round, network: Network) -> float:
    """Return the seconds of messages and bytes, plus those of the longest computation."""
    queues = by_slot(round_.messages).values()
    if not queues:
        return 0.0
    delays = 2 * network.delay * max(len(queue) for queue in queues)
    num_bytes = sum(message.sent + message.received for message in round_.messages)
    computing = max(sum(message.computing for message in queue) for queue in queues)
    return delays + num_bytes / network.bandwidth + computing


def replay(round_: Round, network: Network, cores: int = UNLIMITED, factor: float = 1.0) -> float:
    """Return the seconds until the last reply, if computing takes `factor` times as long."""
    queues = [iter(queue) for queue in by_slot(round_.messages).values()]
    current = [next(queue) for queue in queues]
    events = [(0.0, index, "send") for index in range(len(queues))]
    out_free = in_free = end = 0.0
    busy_until: list[float] = []  # of the cores that were taken, the first to be free on top
    while events:
        now, index, what = heapq.heappop(events)
        message = current[index]
        if what == "send":
            out_free = max(now, out_free) + message.sent / network.bandwidth
            heapq.heappush(events, (out_free + network.delay, index, "compute"))
        elif what == "compute":
            begin = max(now, heapq.heappop(busy_until)) if len(busy_until) == cores else now
            done = begin + factor * message.computing
            heapq.heappush(busy_until, done)
            heapq.heappush(events, (done, index, "reply"))
        elif what == "reply":
            in_free = max(now, in_free) + message.received / network.bandwidth
            heapq.heappush(events, (in_free + network.delay, index, "arrive"))
        else:
            end = max(end, now)
            if (following := next(queues[index], None)) is not None:
                current[index] = following
                heapq.heappush(events, (now, index, "send"))
    return end


def driver_seconds(stage: Stage, cores: int = UNLIMITED) -> float:
    """Return what a stage without a network took beyond its rounds."""
    return stage.seconds - sum(replay(round_, NO_NETWORK, cores) for round_ in stage.rounds)


def projected(stage: Stage, network: Network, cores: int = UNLIMITED) -> Mapping[str, float]:
    """Return the seconds of a stage on a network by both projections."""
    driver = driver_seconds(stage, cores)
    return {
        "rule": driver + sum(rule_of_thumb(round_, network) for round_ in stage.rounds),
        "replay": driver + sum(replay(round_, network, cores) for round_ in stage.rounds),
    }
