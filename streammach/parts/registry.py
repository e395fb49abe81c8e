"""The optional parts, in the order in which they are decided on."""

from __future__ import annotations

from importlib import import_module

from streammach.options.config import PartPlan, RunConfig
from streammach.options.facts import DataFacts
from streammach.options.training import TrainSpec
from streammach.parts.base import Part
from streammach.parts.expected import PartBytes, PartTime
from streammach.parts.switches import SWITCHES

PARTS: dict[str, Part] = {
    part.name: part
    for part in (import_module(f"streammach.parts.{name}.part").PART for name in SWITCHES)
}


def parts_of_plan(config: RunConfig) -> list[Part]:
    """Return the parts that there is room for."""
    names = {part.name for part in config.parts}
    return [part for part in PARTS.values() if part.name in names]


def bytes_of_parts(facts: DataFacts, config: RunConfig) -> dict[str, PartBytes]:
    """Return the bytes of the parts of a plan, by name."""
    return {one.name: one.project_bytes(facts, config) for one in parts_of_plan(config)}


def times_of_parts(facts: DataFacts, config: RunConfig) -> dict[str, PartTime]:
    """Return the time of the parts of a plan, by name."""
    return {one.name: one.project_time(facts, config) for one in parts_of_plan(config)}


def weighed_parts(config: RunConfig) -> tuple[PartPlan, ...]:
    """Return those that are weighed against one another."""
    names = {part.name for part in PARTS.values() if part.weighed}
    return tuple(part for part in config.parts if part.name in names)


def parts_text(parts: tuple[PartPlan, ...]) -> str:
    """Return the parts that are weighed in a word or two, for a table of plans."""
    found = {part.name: part for part in parts}
    some = [one for one in PARTS.values() if one.weighed and one.name in found]
    return ", ".join(part.describe(found[part.name]) for part in some) or "-"


def switches_of(facts: DataFacts, config: RunConfig, spec: TrainSpec) -> dict[str, str]:
    """Return what a user would say of each part to have a training without a search for them."""
    found = {}
    for part in PARTS.values():
        if part.switch_on is None or part.find_obstacle(facts, config):
            continue
        if part.reason_against(config):
            continue
        if any(choice.plan for choice in part.list_choices(facts, config, sure=False)):
            used = part.switch_on(spec) == spec
            found[part.switch.option] = part.switch.words[1 if used else 2]
    return found


def words_of_plan(config: RunConfig) -> tuple[tuple[str, str], ...]:
    """Return what a user would say of each part to have a plan with the same ones."""
    found = []
    for part in PARTS.values():
        planned_part = config.part(part.name)
        word = 2 if planned_part is None else 1 if planned_part.fixed else 0
        found.append((part.switch.option, part.switch.words[word]))
    return tuple(found)
