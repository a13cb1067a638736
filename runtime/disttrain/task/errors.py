"""What can be wrong with a user's task. All of it is final: somebody has to change the task.

FinalError
└── TaskError            anything wrong with the task
    ├── EntrypointError      `module:Class` does not lead to a task
    ├── ArgumentsError       the class does not take the arguments of the manifest
    ├── UserCodeError        the task's own code raised; the text holds its shortened traceback
    ├── ModelError           the model cannot be trained as it is
    ├── DatasetError         the data set cannot be divided into batches
    ├── GroupsError          the parameter groups do not fit the model
    ├── LossError            the loss is nothing that a gradient can be taken of
    ├── CodeError            the task's folder holds more code than a task has, or unreadable code
    └── MeasureError         the measures are no sums by name
"""

from disttrain.errors import FinalError


class TaskError(FinalError):
    """Something is wrong with the user's task."""


class EntrypointError(TaskError):
    """`spec.task.entrypoint` does not lead to a class that extends `disttrain.Task`."""


class ArgumentsError(TaskError):
    """`spec.task.arguments` does not fit the constructor; one line per argument."""


class UserCodeError(TaskError):
    """The task's own code raised; the original error is the cause."""


class ModelError(TaskError):
    """`Task.model` returned what cannot be trained."""


class GroupsError(TaskError):
    """`Task.parameter_groups` returned what does not fit the model."""


class DatasetError(TaskError):
    """`Task.dataset` returned what cannot be divided into batches."""


class LossError(TaskError):
    """`Task.loss` returned what no gradient can be taken of."""


class CodeError(TaskError):
    """The task's folder holds more Python files than a task has, or one that cannot be read."""


class MeasureError(TaskError):
    """`Task.measure` returned something else than sums by name."""
