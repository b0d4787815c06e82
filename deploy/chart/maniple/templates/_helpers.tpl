{{- define "maniple.selector" -}}
app.kubernetes.io/name: maniple
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "maniple.labels" -}}
{{ include "maniple.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* An integer that came through JSON is a float, and would be written as 1e+06. */}}
{{- define "maniple.seconds" -}}
{{- printf "%v" . | float64 | printf "%.15g" -}}
{{- end }}
