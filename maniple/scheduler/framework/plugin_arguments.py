"""Plugin arguments: strings in the policy file, typed here.

An argument that the plugin does not read is an error, and so is one that has no effect with the rest of the policy.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

from maniple.api.errors import InputError, nearest
from maniple.scheduler.framework.action import Ability

T = TypeVar("T")

_MOST = 1e9  # of any number


class Arguments:
    def __init__(self, plugin: str, given: Mapping[str, str], source: str) -> None:
        self._plugin = plugin
        self._given = given
        self._source = source
        self._known: set[str] = set()
        self._users: dict[str, Ability] = {}
        self._needs: dict[str, tuple[str, str]] = {}
        self.values: dict[str, object] = {}  # as the plugin reads them, defaults included

    def number(self, name: str, default: float) -> float:
        def parse(text: str) -> float:
            value = float(text)
            if not 0 <= value <= _MOST:
                raise ValueError
            return value

        return self._read(name, default, parse, f"a number from 0 to {_MOST:.0f}")

    def whole_number(self, name: str, default: int) -> int:
        def parse(text: str) -> int:
            value = float(text)
            if not (0 <= value <= _MOST and value.is_integer()):
                raise ValueError
            return int(value)

        return self._read(name, default, parse, f"a whole number from 0 to {_MOST:.0f}")

    def boolean(self, name: str, default: bool) -> bool:
        words = {"true": True, "false": False}
        return self._read(name, default, lambda text: words[text.lower()], "true or false")

    def word(self, name: str, default: str) -> str:
        def parse(text: str) -> str:
            (word,) = text.replace(",", " ").split()
            return word

        return self._read(name, default, parse, "one word")

    def words(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        def parse(text: str) -> tuple[str, ...]:
            return tuple(word.strip() for word in text.split(",") if word.strip())

        return self._read(name, default, parse, "names separated by commas")

    def parsed(self, name: str, default: T, parse: Callable[[str], T]) -> T:
        """The value that `parse` returns. Its ValueError says what was expected."""
        self._known.add(name)
        self.values[name] = default
        if name not in self._given:
            return default
        try:
            value = parse(self._given[name])
        except ValueError as error:
            raise self.error(name, str(error)) from None
        self.values[name] = value
        return value

    def only_for(self, ability: Ability, *names: str) -> None:
        """Only actions with the ability do what these arguments ask for."""
        self._users |= dict.fromkeys(names, ability)

    def only_with(self, other: str, value: str, *names: str) -> None:
        """These arguments have no effect while `other` is false or 0. `value`: an example of what it may be."""
        self._needs |= dict.fromkeys(names, (other, value))

    def without_effect(self, abilities: Collection[Ability]) -> Iterator[str]:
        """A message for each argument that was given and does nothing. `abilities`: those of the policy's actions.

        What is switched off by its value says so itself.
        """
        for name in self._given:
            user = self._users.get(name)
            other, value = self._needs.get(name, ("", ""))
            message = ""
            if self.values.get(name) is False:
                continue
            if user is not None and user not in abilities:
                message = f"it has no effect without the action {user}; add {user} to actions, or remove it"
            elif other and not self.values[other]:
                message = f"it has no effect without {other}; add {other}: {value}, or remove it"
            if message:
                yield from self.error(name, message).messages

    def _read(self, name: str, default: T, parse: Callable[[str], T], expected: str) -> T:
        def parse_or_explain(text: str) -> T:
            try:
                return parse(text)
            except (ValueError, KeyError):
                raise ValueError(f"expected {expected}, got {text!r}") from None

        return self.parsed(name, default, parse_or_explain)

    def error(self, name: str, message: str) -> InputError:
        return InputError([f"{self._source}: plugin {self._plugin}: argument {name}: {message}"])

    def finish(self) -> None:
        """Raises InputError for arguments that the plugin did not read."""
        unknown = sorted(set(self._given) - self._known)
        if unknown:
            none = "; it takes none" if not self._known else ""
            raise InputError(
                f"{self._source}: plugin {self._plugin}: unknown argument {name!r}{none or nearest(name, self._known)}"
                for name in unknown
            )
