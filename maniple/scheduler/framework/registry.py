"""Plugins and actions by name: built-in ones, and entry points of installed packages.

Entry points are read once, when the first policy is loaded. A package is imported only if a policy names its entry.
"""

from collections.abc import Mapping
from functools import cache, cached_property
from importlib.metadata import EntryPoint, EntryPoints, distributions
from typing import Generic, TypeVar

from maniple.api.errors import InputError, did_you_mean

T = TypeVar("T")


@cache
def installed() -> EntryPoints:
    """Entry points of all packages. Cached: the search takes 10 ms."""
    return EntryPoints(entry for package in distributions() for entry in package.entry_points)


class Registry(Generic[T]):
    def __init__(self, noun: str, group: str, built_in: Mapping[str, type[T]]) -> None:
        self._noun = noun
        self._group = group
        self._built_in = built_in

    @cached_property
    def _offers(self) -> dict[str, list[EntryPoint]]:
        """Entry points by name. A package that is on two paths counts once."""
        offers: dict[str, dict[str, EntryPoint]] = {}
        for entry in installed().select(group=self._group):
            offers.setdefault(entry.name, {}).setdefault(self._source(entry), entry)
        return {name: list(entries.values()) for name, entries in offers.items()}

    def is_built_in(self, name: str) -> bool:
        return name in self._built_in

    def has(self, name: str) -> bool:
        """Whether it is built in, or an installed package offers it."""
        return name in self._built_in or name in self._offers

    def find(self, name: str, where: str) -> type[T]:
        """The class of that name; InputError at `where` if there is none or more than one."""
        offers = self._offers.get(name, [])
        sources = [f"the built-in {self._noun}"] * (name in self._built_in) + [self._source(entry) for entry in offers]
        if not sources:
            names = sorted({*self._built_in, *self._offers})
            meant = did_you_mean(name, names)
            known = f"{' known' if meant else '; known'}: {', '.join(names)}"
            raise InputError([f"{where}: unknown {self._noun} {name!r}{meant}{known}"])
        if len(sources) > 1:
            both = " and ".join(sources)
            raise InputError([f"{where}: {self._noun} {name!r} is offered by {both}; rename or uninstall one"])
        return self._load(offers[0], where) if offers else self._built_in[name]

    def _load(self, entry: EntryPoint, where: str) -> type[T]:
        try:
            offered = entry.load()
        except Exception as error:  # a foreign module can raise anything
            problem = f"{type(error).__name__}: {error}"
            raise InputError([f"{where}: {self._noun} {entry.name!r} of {self._source(entry)}: {problem}"]) from error
        if not isinstance(offered, type):
            raise InputError([f"{where}: {self._noun} {entry.name!r} of {self._source(entry)} is not a class"])
        return offered

    def _source(self, entry: EntryPoint) -> str:
        package = f"package {entry.dist.name}" if entry.dist is not None else "a package"
        return f"{package} ({self._group}: {entry.name} = {entry.value})"
