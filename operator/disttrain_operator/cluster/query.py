"""Which objects a list or a watch is about."""

from dataclasses import dataclass

from disttrain_operator.kinds import Kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """Objects of one kind."""

    kind: Kind
    namespace: str | None = None
    """None: in all namespaces."""
    labels: str = ""
    """A label selector."""
    fields: str = ""
    """A field selector."""
    metadata_only: bool = False
    """Whether nothing but the metadata matters."""

    @property
    def path(self) -> str:
        return self.kind.value.path(self.namespace)

    @property
    def parameters(self) -> dict[str, str]:
        selectors = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in selectors.items() if value}
