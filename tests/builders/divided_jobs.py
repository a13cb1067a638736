"""Manifests of jobs whose replicas divide the model."""

MANIFEST = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: divided}
spec:
  task: {entrypoint: "divided_images:DividedImages"}
  strategy: {downpour: {maxInFlight: 0, optimizer: {sgd: {learningRate: 0.1}}}}
  batchSize: 8
  portionSize: 24
  stop: {epochs: 2}
  evaluation: null
  audit: full
  coordinator: {heartbeatSeconds: 0.2}
  parameterServer: {shards: 4}
  replicas: {count: 1, device: cpu, threads: 1}
"""
LOCAL_STEPS = (
    "spec.strategy={localSteps: {steps: 3, adopt: replace, "
    "optimizer: {name: AdamW, arguments: {lr: 0.01}}}}",
    "spec.task.arguments={normalised: false}",
)
