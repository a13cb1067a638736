"""Guards of models that are cut between layers."""

from mutants.mutant import Mutant

_R = "runtime/disttrain"
_LAYERS = ("tests/unit/parallel/test_whole_layers.py",)
_GRIDS = "tests/unit/parallel/test_own_grids.py"
_REPLICA = ("tests/unit/replica/test_whole_layers_of_partitions.py",)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="a dropout for which each slice is a step",
        file=f"{_R}/parallel/layers/dropout.py",
        old="        if self.first_sample == 0:\n",
        new="        if True:\n",
        tests=_LAYERS,
    ),
    Mutant(
        name="slices whose samples have one mask",
        file=f"{_R}/parallel/layers/dropout.py",
        old="first, end = self.first_sample, self.first_sample + samples",
        new="first, end = 0, samples",
        tests=_LAYERS,
    ),
    Mutant(
        name="a partition that keeps layers of others",
        file=f"{_R}/parallel/layers/on_one.py",
        old="super().__init__(peers, module if peers.rank == place else None)",
        new="super().__init__(peers, module)",
        tests=_LAYERS,
    ),
    Mutant(
        name="statistics of a slice instead of a batch",
        file=f"{_R}/parallel/partitioning.py",
        old="self.need_batches.get(name) or whole_layers",
        new="whole_layers",
        tests=_LAYERS,
    ),
    Mutant(
        name="a layer that mixes the samples of a slice",
        file=f"{_R}/parallel/partitioning.py",
        old="self.need_batches.get(name) or whole_layers.mixing(*self.inputs[name])",
        new='self.need_batches.get(name, "")',
        tests=_LAYERS,
    ),
    Mutant(
        name="a gradient of one slice alone",
        file=f"{_R}/parallel/layers/on_one.py",
        old="            self._found[key].add_(one)\n",
        new="            pass\n",
        tests=_LAYERS,
    ),
    Mutant(
        name="gradients of slices that are added up in the memory of others",
        file=f"{_R}/parallel/layers/on_one.py",
        old="        elif key not in self._own:\n",
        new="        elif False:\n",
        tests=_LAYERS,
    ),
    Mutant(
        name="a layer on a partition that there is not",
        file=f"{_R}/parallel/ways.py",
        old="        if 0 <= place < self.partitions:\n",
        new="        if True:\n",
        tests=_LAYERS,
    ),
    Mutant(
        name="a grid of more partitions than there are",
        file=f"{_R}/parallel/ways.py",
        old="        if grid.size <= self.partitions:\n",
        new="        if True:\n",
        tests=(_GRIDS,),
    ),
    Mutant(
        name="filters of places where a partition has none",
        file=f"{_R}/parallel/layers/partitioned.py",
        old="            if not own.area:\n",
        new="            if False:\n",
        tests=(_GRIDS,),
    ),
    Mutant(
        name="types of numbers that a partition cannot know",
        file=f"{_R}/parallel/layers/partitioned.py",
        old="return y if all(box.area for box in self._outputs) else y.to(type_for_all(x))",
        new="return y",
        tests=(_GRIDS,),
    ),
    Mutant(
        name="a gradient that stops where a partition has no window",
        file=f"{_R}/parallel/layers/partitioned.py",
        old="        own = [*self._own().values(), *self._elsewhere]\n",
        new="        own: list[Tensor] = []\n",
        tests=(_GRIDS,),
    ),
    Mutant(
        name="a grid in a manifest of more partitions than there are",
        file=f"{_R}/job/rules/replicas.py",
        old="        if size > partitions:\n",
        new="        if False:\n",
        tests=("tests/unit/job/test_whole_layers.py",),
    ),
    Mutant(
        name="a layer in a manifest on a partition that there is not",
        file=f"{_R}/job/rules/replicas.py",
        old="        if place > last:\n",
        new="        if False:\n",
        tests=("tests/unit/job/test_whole_layers.py",),
    ),
    Mutant(
        name="modes within a layer elsewhere that nobody tells it",
        file=f"{_R}/replica/layer_modes.py",
        old="        if each.training != module.training:\n",
        new="        if False:\n",
        tests=_REPLICA,
    ),
)
