{{/* Whether the policies are wanted, and the cluster has them and tokens that name their node. */}}
{{- define "podslice.policies" -}}
{{- if and .Values.admissionPolicies (semverCompare ">=1.32-0" .Capabilities.KubeVersion.Version) }}true{{ end -}}
{{- end }}
