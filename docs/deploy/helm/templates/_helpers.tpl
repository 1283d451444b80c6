{{/* The names of the parts begin with that of the release. */}}
{{- define "triton" }}{{ .Release.Name }}-triton{{ end }}
{{- define "envoy" }}{{ .Release.Name }}-envoy{{ end }}
{{- define "valkey" }}{{ .Release.Name }}-valkey{{ end }}

{{/* The secret with the store's password, if there is one. */}}
{{- define "secret" }}
{{- if .Values.store.secret }}{{ .Values.store.secret }}
{{- else if or .Values.store.password (not .Values.store.url) }}{{ .Release.Name }}-store
{{- end }}
{{- end }}

{{- define "store" }}{{ .Values.store.url | default (printf "valkey://%s:6379/0" (include "valkey" .)) }}{{ end }}

{{/* A number of bytes in a file of values is a float to Helm, which would write it as 3e+09. */}}
{{- define "maxmemory" }}{{ ternary (int64 .Values.store.maxmemory) .Values.store.maxmemory (kindIs "float64" .Values.store.maxmemory) }}{{ end }}
