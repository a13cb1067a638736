{{/* The name of everything that belongs to the release. */}}
{{- define "disttrain-operator.fullname" -}}
{{- if contains "disttrain" .Release.Name -}}
{{- printf "%s-operator" (.Release.Name | trimSuffix "-operator") | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-disttrain-operator" (.Release.Name | trunc 44 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "disttrain-operator.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "disttrain-operator.fullname" .) -}}
{{- end -}}

{{/* What never changes: selectors are immutable. */}}
{{- define "disttrain-operator.selector" -}}
app.kubernetes.io/name: disttrain-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "disttrain-operator.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: disttrain
{{ include "disttrain-operator.selector" . }}
{{- end -}}

{{/* Of (list ROOT IMAGE): the whole name of an image. */}}
{{- define "disttrain-operator.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $name := printf "%s%s" $root.Values.imagePrefix $image.repository -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name ($image.tag | default $root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* What the operator may do where it runs jobs, and may therefore grant: it never escalates or binds. */}}
{{- define "disttrain-operator.rules" -}}
- apiGroups: [disttrain.dev]
  resources: [disttrainjobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [disttrain.dev]
  resources: [disttrainjobs/status]
  verbs: [patch]
# Owner references that block the owner's deletion ask for this.
- apiGroups: [disttrain.dev]
  resources: [disttrainjobs/finalizers]
  verbs: [update]
# The objects of a job. Kubernetes deletes them when their owner is gone.
- apiGroups: [""]
  resources: [configmaps, persistentvolumeclaims, serviceaccounts, services]
  verbs: [get, list, watch, create, patch]
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [get, list, watch, create, patch]
# A coordinator's Job is made anew, for its next pod would have to wait for up to ten minutes.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [rolebindings, roles]
  verbs: [get, list, watch, create, patch]
# Keys are written once and never read back.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
# Those on lost nodes are deleted at once.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, delete]
# A Job's finalizer holds the coordinator's pod on a lost node until its status says that it ended.
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [events]
  verbs: [list, watch, create]
{{- end -}}

{{- define "disttrain-operator.pullSecretNames" -}}
{{- $names := list -}}
{{- range .Values.imagePullSecrets }}{{ $names = append $names .name }}{{ end -}}
{{- join "," $names -}}
{{- end -}}
