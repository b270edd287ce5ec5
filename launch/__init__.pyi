# For type checkers only: at run time launch/ is a namespace package whose names src/headrace/__init__.py supplies.
from headrace.launch.runner import TrainResult as TrainResult
from headrace.launch.runner import train as train
