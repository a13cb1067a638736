"""Between the layout of an undivided model and the manifest's tensors and pieces. Pure."""

from disttrain.checkpoint.errors import WrongModel
from disttrain.checkpoint.manifest import Manifest, ModelTensor, Piece, Slice
from disttrain.state.layout import ModelLayout, TensorSpec


def tensors(layout: ModelLayout) -> tuple[ModelTensor, ...]:
    return tuple(
        ModelTensor(name=spec.name, aliases=spec.aliases, shape=spec.shape, dtype=spec.dtype)
        for spec in layout.tensors
    )


def pieces(layout: ModelLayout) -> tuple[Piece, ...]:
    """One piece per tensor: all of it."""
    return tuple(
        Piece(
            tensor=spec.name,
            slices=tuple(Slice(first=0, end=size) for size in spec.shape),
            vector=spec.vector,
            first=spec.first,
        )
        for spec in layout.tensors
    )


def layout(manifest: Manifest) -> ModelLayout:
    """The layout of the model in a checkpoint. Raises WrongModel if that is divided."""
    places = {piece.tensor: piece for piece in manifest.pieces}
    if len(places) != len(manifest.pieces) or any(
        piece.vector.partition for piece in manifest.pieces
    ):
        message = f"checkpoint {manifest.number} is of a model divided over partitions"
        raise WrongModel(message)
    return ModelLayout(
        tensors=tuple(
            TensorSpec(
                name=tensor.name,
                aliases=tensor.aliases,
                shape=tensor.shape,
                dtype=tensor.dtype,
                vector=places[tensor.name].vector,
                first=places[tensor.name].first,
            )
            for tensor in manifest.tensors
        )
    )
