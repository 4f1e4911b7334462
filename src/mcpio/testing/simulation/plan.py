"""What happens in a world, decided before it begins: the same plan gives the same run.

A plan is drawn from a seed. What is not in it (delays, sizes of pieces, the order of tasks) follows from its seed while
it runs.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from mcpio._checks import is_amount, is_count

Era: TypeAlias = Literal["handshake", "stateless", "auto"]
Carrier: TypeAlias = Literal["pipe", "http"]
Level: TypeAlias = Literal["machines", "programs"]


def one_of(name: str, value: object, kind: Any) -> None:
    """Raise ValueError unless a value is one of those of a Literal."""
    *others, last = map(repr, get_args(kind))
    if not isinstance(value, str) or value not in get_args(kind):
        raise ValueError(f"{name} must be {', '.join(others)} or {last}, not {value!r:.100}")


def _in(kind: Any) -> Any:
    """Return an attrs validator for the values of a Literal."""
    return lambda _, field, value: one_of(field.name, value, kind)


@attrs.frozen(kw_only=True)
class Faults:
    """The faults that worlds may have: how many of a kind in a world, at most, or how often. All are off by default."""

    resets: int = 0
    """Connections and HTTP exchanges that break."""
    stalls: int = 0
    """Connections and exchanges on which nothing arrives for some time."""
    half_open: int = 0
    """Connections and exchanges that lose everything from some moment on, without telling either side."""
    kills: int = 0
    """Server processes that are killed, and started again with what their stores had made durable."""
    restarts: int = 0
    """Server processes that end gracefully, and are started again."""
    pauses: int = 0
    """Processes that stand still for some time."""
    vanishing: int = 0
    """Clients that are gone without a word, and begin anew."""
    clock_jumps: int = 0
    """Wall clocks that are set."""
    store_failures: int = 0
    """Times in which stores raise."""
    delay: float = 0.02
    """The longest usual delay of a piece in flight, in seconds. Reordering between HTTP streams follows from it."""
    splits: float = 0.0
    """The share of reads that return only some of the available bytes, from 0 to 1."""
    duplicates: float = 0.0
    """The share of repeatable HTTP requests that arrive twice, from 0 to 1."""

    def __attrs_post_init__(self) -> None:
        for name in _COUNTED:
            if not is_count(value := getattr(self, name)):
                raise ValueError(f"{name} must be an integer of at least 0, not {value!r:.100}")
        if not is_amount(self.delay):
            raise ValueError(f"delay must be a number of seconds of at least 0, not {self.delay!r:.100}")
        for name in ("splits", "duplicates"):
            if not is_amount(value := getattr(self, name)) or value > 1:
                raise ValueError(f"{name} must be a number from 0 to 1, not {value!r:.100}")

    @staticmethod
    def none() -> Faults:
        """Return no faults: only the order of events differs between seeds."""
        return Faults()

    @staticmethod
    def mild() -> Faults:
        """Return the faults of a bad day."""
        return Faults(resets=1, stalls=1, restarts=1, splits=0.1, delay=0.05)

    @staticmethod
    def harsh() -> Faults:
        """Return all faults."""
        return Faults(
            resets=4,
            stalls=3,
            half_open=2,
            kills=2,
            restarts=2,
            pauses=2,
            vanishing=2,
            clock_jumps=1,
            store_failures=1,
            delay=0.2,
            splits=0.3,
            duplicates=0.3,
        )


@attrs.frozen
class Act:
    """One thing that a program does."""

    what: str
    """What, by a name of ``mcpio.testing.simulation.workload.ACTS``, or of a user's program."""
    after: float = 0.0
    """Seconds that the program waits before."""
    lasts: float = 0.0
    """Seconds that it takes, where the program decides that."""
    size: int = 1
    """How much of it."""
    timeout: float = 10.0
    """Seconds that the program allows for the answer."""
    cancel: float | None = None
    """Seconds after which the program gives up, ``None`` for never."""
    steps: int | None = None
    """Steps of Trio's tasks after which the program gives up, in worlds of whole programs; ``None`` for never."""


@attrs.frozen
class Party:
    """A client: how it connects, and what its tasks do at the same time."""

    carrier: Carrier = attrs.field(default="pipe", validator=_in(Carrier))
    """How the client reaches the server."""
    era: Era = attrs.field(default="handshake", validator=_in(Era))
    """The era that the client speaks."""
    keeps: bool = True
    """Whether the client reconnects automatically."""
    lanes: tuple[tuple[Act, ...], ...] = ()
    """The acts of each of its tasks, in order."""


@attrs.frozen
class Mishap:
    """One fault."""

    kind: str
    """A field of ``Faults``."""
    at: float
    """The time of the fault, in seconds since the start of the world."""
    on: int = 0
    """The index of the connection, process or store that it hits, modulo their number."""
    lasts: float = 1.0
    """The duration in seconds, of faults that end."""


@attrs.frozen
class Plan:
    """Everything that is decided of a world."""

    seed: int
    """The seed of delays, sizes of pieces and the order of tasks."""
    parties: tuple[Party, ...]
    """The clients."""
    mishaps: tuple[Mishap, ...] = ()
    """The faults that happen at a time."""
    processes: int = 1
    """How many server processes are behind one address."""
    durable: bool = False
    """Whether sessions and tasks are kept in stores."""
    shuffles: bool = False
    """Whether tasks that are ready run in any order."""
    calm_at: float = 20.0
    """When the faults are switched off, in seconds."""
    delay: float = 0.02
    """The longest delay of the network in seconds."""
    splits: float = 0.0
    """How often a piece is split, from 0 to 1."""
    duplicates: float = 0.0
    """How many of the HTTP requests that may be repeated arrive twice, from 0 to 1."""
    level: Level = attrs.field(default="machines", validator=_in(Level))
    """Whether only the machines run, or whole programs on Trio."""

    def program(self, parties: str = "") -> str:
        """Return a program that runs this world. ``parties`` are the arguments of ``rerun`` after the plan."""
        lines = ["from mcpio.testing.simulation import Act, Mishap, Party, Plan, rerun", "", "rerun(Plan("]
        lines.append(f"    seed={self.seed},")
        lines.append("    parties=(")
        for party in self.parties:
            lines.append(f"        Party({party.carrier!r}, {party.era!r}, keeps={party.keeps}, lanes=(")
            lines += [f"            ({''.join(f'{_shortly(act)}, ' for act in lane)})," for lane in party.lanes]
            lines.append("        )),")
        lines.append("    ),")
        if self.mishaps:
            lines.append(f"    mishaps=({', '.join(map(_shortly, self.mishaps))},),")
        for field in attrs.fields(Plan)[3:]:
            value = getattr(self, field.name)
            if value != field.default:
                lines.append(f"    {field.name}={value!r},")
        return "\n".join([*lines, f"){parties})"])


def _shortly(value: Act | Mishap) -> str:
    """Return the text that makes a value again, without defaults."""
    fields = attrs.fields(type(value))
    arguments = [
        f"{field.name}={member!r}" for field in fields[1:] if (member := getattr(value, field.name)) != field.default
    ]
    first = getattr(value, fields[0].name)
    return f"{type(value).__name__}({', '.join([repr(first), *arguments])})"


# -------------------------------------------------------------------------------------------------------------- drawing

_TIMES: Final = (0.0, 0.01, 0.1, 0.5, 2.0)
_LENGTHS: Final = (0.0, 0.05, 0.5, 3.0)
_COUNTED: Final = tuple(field.name for field in attrs.fields(Faults) if field.default.__class__ is int)


def drawn(
    seed: int,
    faults: Faults,
    acts: tuple[str, ...],
    *,
    clients: int | None = None,
    era: Era | None = None,
    carrier: Carrier | None = None,
    length: int = 10,
    level: Level = "machines",
) -> Plan:
    """Draw a plan. ``acts`` are the names of what programs may do; ``length`` is how many acts a task has, about."""
    chance = Random(f"plan {seed}")  # noqa: S311  not for secrets
    few = chance.choice((faults, faults, Faults(delay=faults.delay), attrs.evolve(faults, kills=0, vanishing=0)))
    # Every world has its own few kinds of acts: the same one again and again finds what a mixture does not.
    liked = chance.sample(acts, min(len(acts), chance.randint(2, 6)))
    eras: tuple[Era, ...] = ("handshake", "stateless", "auto") if era is None else (era,)
    carriers: tuple[Carrier, ...] = ("pipe", "http") if carrier is None else (carrier,)
    if chance.random() < 0.5:
        eras, carriers = (chance.choice(eras),), (chance.choice(carriers),)
    calm_at = chance.choice((5.0, 20.0, 60.0))
    parties = tuple(
        Party(
            chance.choice(carriers),
            chance.choice(eras),
            keeps=chance.random() < 0.7,
            lanes=tuple(
                tuple(_act(chance, liked) for _ in range(chance.randint(1, 2 * length)))
                for _ in range(chance.randint(1, 3))
            ),
        )
        for _ in range(clients or chance.choice((1, 2, 2, 3, 4)))
    )
    mishaps = [
        Mishap(
            kind,
            round(chance.random() * calm_at * 0.9, 3),
            chance.randrange(100),
            chance.choice((0.1, 1.0, 5.0, 15.0)),
        )
        for kind in _COUNTED
        for _ in range(chance.randint(0, getattr(few, kind)))
    ]
    plan = Plan(
        seed,
        parties,
        tuple(sorted(mishaps, key=lambda mishap: mishap.at)),
        processes=chance.choice((1, 1, 2, 3)),
        durable=chance.random() < 0.5,
        shuffles=chance.random() < 0.7,
        calm_at=calm_at,
        delay=few.delay * chance.choice((0.1, 1.0, 1.0)),
        splits=few.splits,
        duplicates=few.duplicates,
    )
    return plan if level == "machines" else _for_programs(plan, chance)


def _for_programs(plan: Plan, chance: Random) -> Plan:
    """Return a plan of whole programs: without what only machines have, and with tasks that are cancelled at a step."""

    def act(drawn: Act) -> Act:
        if drawn.cancel is None or chance.random() < 0.3:
            return drawn
        return attrs.evolve(drawn, cancel=None, steps=chance.choice((chance.randint(1, 12), chance.randint(1, 100))))

    return attrs.evolve(
        plan,
        parties=tuple(
            attrs.evolve(party, lanes=tuple(tuple(map(act, lane)) for lane in party.lanes)) for party in plan.parties
        ),
        mishaps=tuple(each for each in plan.mishaps if each.kind not in _OF_MACHINES),
        processes=1,
        durable=False,
        shuffles=False,
        duplicates=0.0,
        level="programs",
    )


_OF_MACHINES: Final = ("kills", "pauses", "store_failures")
"""The faults that worlds of whole programs do not have."""


def _act(chance: Random, liked: list[str]) -> Act:
    return Act(
        chance.choice(liked),
        after=chance.choice(_TIMES),
        lasts=chance.choice(_LENGTHS),
        size=chance.choice((1, 1, 2, 3)),
        timeout=chance.choice((1.0, 10.0, 10.0, 60.0)),
        cancel=chance.choice((None, None, None, 0.0, 0.02, 0.3)),
    )
