"""The state machine of `machine`, over the real spine with each of the two databases."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.databases import NewDatabase
from tests.faults.machine import SpineMachine


def run(new_database: NewDatabase, examples: int, steps: int, faults: int, *, patient: bool) -> None:
    """Run the machine. What fails is printed step by step; to shrink it takes minutes."""
    phases = [phase for phase in Phase if patient or phase is not Phase.shrink]
    chosen = settings(
        max_examples=examples, stateful_step_count=steps, phases=phases, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(lambda: SpineMachine(new_database, faults, patient=patient), settings=chosen)


@pytest.mark.timeout(300)
def test_catalog_cache_and_log_agree_whatever_happens(new_database: NewDatabase) -> None:
    """After each step the catalog is the model, the cache is the model, and the catalog is the log folded from zero."""
    run(new_database, examples=4, steps=20, faults=3, patient=False)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_they_agree_over_hundreds_of_steps(new_database: NewDatabase) -> None:
    """The same, for long."""
    run(new_database, examples=12, steps=100, faults=30, patient=True)
