# Completions of {{.Program}} for fish. To use them: {{.Program}} help completion fish | source
{{- $program := .Program}}
function __{{.Function}}_names -d 'services of the running node, or endpoints'
	set -l words (commandline -opc)
	$words[1] $argv -timeout=2s (string match -r -- '^--?(?:control|takeover|config)=.*' $words) 2>/dev/null
end
function __{{.Function}}_command -d 'whether the line has this command, and so many arguments'
	set -l words (string match -v -- '-*' (commandline -opc))
	test "$words[2]" = "$argv[1]"; and begin; not set -q argv[2]; or test (count $words) -eq (math $argv[2] + 2); end
end
function __{{.Function}}_argument -d 'the first argument of the command'
	set -l words (string match -v -- '-*' (commandline -opc))
	echo $words[3]
end
complete -c {{$program}} -f
complete -c {{$program}} -n 'test (count (commandline -opc)) -eq 1' -a help -d 'explains a topic, a flag or a command'
complete -c {{$program}} -n '__{{.Function}}_command help 0' -a '{{join .Pages " "}}'
complete -c {{$program}} -n '__{{.Function}}_command help 1' -a 'bash zsh fish'
{{- range .Commands}}{{$word := .Word}}{{if .Word}}
complete -c {{$program}} -n 'test (count (commandline -opc)) -eq 1' -a {{.Word}} -d '{{fish .Summary}}'
{{- if .Directory}}
complete -c {{$program}} -n '__{{$.Function}}_command {{.Word}}' -a '(__fish_complete_directories)'
{{- end}}
{{- if .Service}}
complete -c {{$program}} -n '__{{$.Function}}_command {{.Word}} 0' -a '(__{{$.Function}}_names names)'
{{- end}}
{{- if .Endpoint}}
complete -c {{$program}} -n '__{{$.Function}}_command {{.Word}} 1' -a '(__{{$.Function}}_names names (__{{$.Function}}_argument))'
{{- end}}{{end}}
{{- range .Flags}}
complete -c {{$program}} -n '{{if $word}}__{{$.Function}}_command {{$word}}{{else}}not string match -qv -- "-*" (commandline -opc)[2..]{{end}}' -o {{.Name}} -d '{{fish .Text}}'
{{- if not .Boolean}} -r{{if .Choices}} -a '{{join .Choices " "}}'{{else if .File}} -F{{else if .Directory}} -a '(__fish_complete_directories)'{{else if .Service}} -a '(__{{$.Function}}_names names)'{{else if .Endpoint}} -a '(__{{$.Function}}_names names -endpoints)'{{end}}{{end}}
{{- end}}
{{- end}}
