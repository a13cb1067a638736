"""The dashboards as Grafana would read them."""

import json
from itertools import groupby
from typing import Any

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard, units

from disttrain_monitoring import grafana
from disttrain_monitoring.fleet import FLEET
from disttrain_monitoring.one_job import ONE_JOB
from disttrain_monitoring.panel import Board, Kind, Panel

BOARDS = (FLEET, ONE_JOB)
UNITS = {value for value in vars(units).values() if isinstance(value, str)}


def all_panels() -> dict[str, Panel]:
    return {f"{board.identity}/{each.title}": each for board in BOARDS for each in board.panels}


PANELS = all_panels()


@pytest.fixture(params=BOARDS, ids=lambda board: board.identity)
def board(request: pytest.FixtureRequest) -> Board:
    found: Board = request.param
    return found


@pytest.fixture
def written(board: Board) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(grafana.as_json(board))
    return found


def test_what_is_written_is_what_the_types_of_grafana_read(written: dict[str, Any]) -> None:
    plugins.register_default_plugins()

    read = dashboard.Dashboard.from_json(written)

    assert json.loads(json.dumps(read, cls=JSONEncoder)) == written


def test_every_panel_has_a_place_of_its_own(written: dict[str, Any]) -> None:
    squares = [
        (x, y)
        for place in (panel["gridPos"] for panel in written["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(squares) == len(set(squares))
    assert max(x for x, _ in squares) == 23
    identities = [panel["id"] for panel in written["panels"]]
    assert len(identities) == len(set(identities))


def test_every_query_asks_the_source_that_is_chosen(written: dict[str, Any]) -> None:
    panels = [panel for panel in written["panels"] if panel["type"] != "row"]

    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert written["templating"]["list"][0]["name"] == "datasource"


@pytest.mark.parametrize("panel", PANELS.values(), ids=list(PANELS))
def test_a_panel_says_what_it_shows_in_which_unit(panel: Panel) -> None:
    assert panel.means.endswith(".")
    assert len(panel.means.split()) >= 10
    assert panel.unit in UNITS
    assert panel.queries
    limits = panel.limits
    assert limits is None or limits.warning != limits.bad or limits.warning == 1


@pytest.mark.parametrize("panel", PANELS.values(), ids=list(PANELS))
def test_lines_of_one_panel_are_told_apart(panel: Panel) -> None:
    legends = [query.legend for query in panel.queries]

    assert len(legends) == len(set(legends))
    if panel.kind in {Kind.LINES, Kind.STACK, Kind.NAME}:
        assert all(legends)


def test_titles_are_not_repeated(board: Board) -> None:
    titles = sorted(panel.title for panel in board.panels)

    assert [title for title, same in groupby(titles) if len(list(same)) > 1] == []


def test_a_limit_below_which_it_is_bad_begins_red() -> None:
    board = grafana.build(ONE_JOB)
    panels = {panel.title: panel for panel in board.panels or [] if panel.title is not None}
    shown = json.loads(json.dumps(panels["Replicas that train"], cls=JSONEncoder))

    steps = shown["fieldConfig"]["defaults"]["thresholds"]["steps"]

    assert (steps[0]["color"], steps[-1]["color"]) == ("red", "green")


def test_a_series_of_a_job_opens_that_job() -> None:
    panels = [panel for panel in FLEET.panels if panel.leads_to]

    assert panels
    for panel in panels:
        address, _, variables = panel.leads_to.partition("?")
        assert address == f"/d/{ONE_JOB.identity}"
        chosen = {variable.name for variable in ONE_JOB.variables if variable.is_chosen}
        assert {word.partition("=")[0] for word in variables.split("&")} >= {
            f"var-{name}" for name in chosen
        }


def test_a_number_without_limits_has_no_color_that_says_good_or_bad() -> None:
    shown = {panel["title"]: panel for panel in json.loads(grafana.as_json(ONE_JOB))["panels"]}

    steps = shown["Updates at risk"]["fieldConfig"]["defaults"]["thresholds"]["steps"]

    assert [step["color"] for step in steps] == ["text"]
