#compdef {{.Program}}
# Completions of {{.Program}} for zsh. To use them: put this file into a directory of $fpath as _{{.Program}}.
{{define "flag"}}'-{{.Name}}{{if not .Boolean}}={{end}}[{{zsh .Text}}]
{{- if .Boolean}}'{{else}}:{{zsh .Value}}:{{if .Choices}}({{zsh (join .Choices " ")}}){{else if .File}}_files{{else if .Directory}}_files -/{{else}} {{end}}'{{end}}{{end -}}
_{{.Function}}() {
	local -a commands
	commands=(
		'help:explains a topic, a flag or a command'
{{- range .Commands}}{{if .Word}}
		'{{.Word}}:{{zsh .Summary}}'{{end}}{{end}}
	)
	if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then
		_describe command commands
		return
	fi
	case $words[2] in
	help)
		if (( CURRENT == 4 )) && [[ $words[3] == completion ]]; then
			compadd bash zsh
		elif (( CURRENT == 3 )); then
			compadd {{join .Pages " "}}
		fi
		;;
{{- range .Commands}}{{if .Word}}
	{{.Word}})
		shift words
		(( CURRENT-- ))
		_arguments{{range .Flags}} \
			{{template "flag" .}}{{end}}{{if .Directory}} \
			'*:directory:_files -/'{{end}}
		;;{{end}}{{end}}
	*){{range .Commands}}{{if not .Word}}
		_arguments{{range .Flags}} \
			{{template "flag" .}}{{end}}{{end}}{{end}}
		;;
	esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
	_{{.Function}} "$@"
else
	compdef _{{.Function}} {{.Program}}
fi
