"""The door to grafana-foundation-sdk: a dashboard of ours as the JSON that Grafana loads."""

import json
from collections.abc import Callable, Iterator
from typing import Final

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from disttrain_monitoring.panel import Board, Kind, Limits, Panel, Variable, Worse
from disttrain_monitoring.query import Query

AnyPanel = timeseries.Panel | stat.Panel | heatmap.Panel

TAG: Final = "disttrain"
_SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_HEIGHTS: Final = {Kind.NUMBER: 4, Kind.NAME: 4}
_USUAL_HEIGHT: Final = 8


def as_json(board: Board) -> str:
    """Return the file of a dashboard, ending with one line feed."""
    encoded = json.dumps(build(board), cls=JSONEncoder, indent=2, sort_keys=True)
    return f"{encoded}\n"


def build(board: Board) -> models.Dashboard:
    """Return the dashboard as the SDK has it."""
    new = (
        dashboard.Dashboard(board.title)
        .uid(board.identity)
        .description(board.means)
        .tags([TAG])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(_to_the_others())
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("source").type("prometheus")
        )
    )
    for variable in board.variables:
        new.with_variable(_variable(variable))
    numbers = iter(range(1, 1000))
    for row in board.rows:
        new.with_row(dashboard.Row(row.title).id(next(numbers)))
        for panel in row.panels:
            new.with_panel(_panel(panel).id(next(numbers)))
    return new.build()


def _to_the_others() -> dashboard.DashboardLink:
    kind = models.DashboardLinkType.DASHBOARDS
    return dashboard.DashboardLink("DistTrain").type(kind).tags([TAG]).keep_time(keep_time=True)


def _variable(variable: Variable) -> dashboard.QueryVariable:
    new = (
        dashboard.QueryVariable(variable.name)
        .label(variable.name)
        .datasource(_SOURCE)
        .query(f"label_values({variable.series}, {variable.label})")
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.NATURAL_ASC)
    )
    if not variable.is_chosen:
        everything = models.VariableOption(selected=True, text=["All"], value=["$__all"])
        new.hide(models.VariableHide.HIDE_VARIABLE).multi(multi=True).include_all(include_all=True)
        new.current(everything)
    return new


def _panel(panel: Panel) -> AnyPanel:
    new = _BUILDERS[panel.kind](panel)
    new.title(panel.title).description(panel.means).datasource(_SOURCE)
    new.span(panel.width).height(_HEIGHTS.get(panel.kind, _USUAL_HEIGHT))
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        new.with_target(_target(query, panel.kind).ref_id(letter))
    if panel.leads_to:
        new.data_links([dashboard.DashboardLink("Open this job").url(panel.leads_to)])
    if panel.repeat:
        new.repeat(panel.repeat).repeat_direction("h")
    return new


def _target(query: Query, kind: Kind) -> prometheus.Dataquery:
    new = prometheus.Dataquery().expr(query.text).legend_format(query.legend or "__auto")
    if kind in {Kind.NUMBER, Kind.NAME}:
        return new.instant()
    if kind is Kind.HEAT_MAP:
        return new.range().format(PromQueryFormat.HEATMAP).legend_format("{{le}}")
    return new.range()


def _lines(panel: Panel) -> timeseries.Panel:
    new = timeseries.Panel().unit(panel.unit).axis_soft_min(0).fill_opacity(10)
    new.legend(common.VizLegendOptions().show_legend(show_legend=True))
    new.color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC))
    if panel.limits is not None:
        style = common.GraphThresholdsStyleConfig().mode(shapes.GraphThresholdsStyleMode.DASHED)
        new.thresholds(_thresholds(panel.limits)).thresholds_style(style)
    return new


def _stack(panel: Panel) -> timeseries.Panel:
    how = common.StackingConfig().mode(shapes.StackingMode.NORMAL)
    return _lines(panel).stacking(how).fill_opacity(40)


def _number(panel: Panel) -> stat.Panel:
    latest = common.ReduceDataOptions().calcs(["lastNotNull"])
    new = stat.Panel().unit(panel.unit).reduce_options(latest).no_value("-")
    new.graph_mode(shapes.BigValueGraphMode.NONE)
    new.color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
    new.thresholds(_thresholds(panel.limits))
    if panel.limits is not None:
        new.color_mode(shapes.BigValueColorMode.BACKGROUND)
    return new


def _name(panel: Panel) -> stat.Panel:
    return _number(panel).text_mode(shapes.BigValueTextMode.NAME)


def _heat_map(panel: Panel) -> heatmap.Panel:
    colors = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64)
    axis = heatmap.YAxisConfig().unit(panel.unit).axis_label("updates")
    return heatmap.Panel().calculate(calculate=False).color(colors).y_axis(axis).show_legend()


_BUILDERS: Final[dict[Kind, Callable[[Panel], AnyPanel]]] = {
    Kind.LINES: _lines,
    Kind.STACK: _stack,
    Kind.NUMBER: _number,
    Kind.NAME: _name,
    Kind.HEAT_MAP: _heat_map,
}


def _thresholds(limits: Limits | None) -> dashboard.ThresholdsConfig:
    return (
        dashboard.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(value=value, color=color) for value, color in _steps(limits)])
    )


def _steps(limits: Limits | None) -> Iterator[tuple[float | None, str]]:
    """The color from each value up; the first has none."""
    if limits is None:
        # Grafana would take a limit of 80 where none is given.
        yield (None, "text")
    elif limits.worse is Worse.ABOVE:
        yield from ((None, "green"), (limits.warning, "yellow"), (limits.bad, "red"))
    else:
        yield from ((None, "red"), (limits.bad, "yellow"), (limits.warning, "green"))
