# Completion of gsaas-standalone for fish. Written by `./dev generate`: change the commands, or generate/, instead.

# Print the command on the line before the cursor, with "--" if another command line follows; and the number of its
# arguments.
function __gsaas_standalone_command
    set -l command
    set -l words (commandline -opc)
    set -e words[1]
    set -l arguments 0
    set -l skip
    for word in $words
        if test -n "$skip"
            set skip
            continue
        end
        switch $word
            case --
                printf '%s
' "$command --" 0
                return
            case --config-file --inventory --listen --log-file --prefix --state-dir
                set skip yes
            case '-*'
                continue
            case '*'
                if contains -- (string trim "$command $word") 
                    set command (string trim "$command $word")
                else
                    set arguments (math $arguments + 1)
                end
        end
    end
    printf '%s
' "$command" $arguments
end

# Whether the command is $argv[1]; and, if it is given, whether it has $argv[2] arguments.
function __gsaas_standalone_at
    set -l found (__gsaas_standalone_command)
    test "$found[1]" = "$argv[1]"; and test "$found[2]" = "$argv[2]" -o (count $argv) -eq 1
end

complete -c gsaas-standalone -f

complete -c gsaas-standalone -n '__gsaas_standalone_at \'\'' -s h -d 'show this help message and exit'
complete -c gsaas-standalone -n '__gsaas_standalone_at \'\'' -l help -d 'show this help message and exit'
complete -c gsaas-standalone -n '__gsaas_standalone_at \'\'' -l state-dir -r -a '(__fish_complete_directories (commandline -ct))' -d 'where everything is recorded (/run/gsaas)'
complete -c gsaas-standalone -n '__gsaas_standalone_at \'\'' -l inventory -r -F -d 'TOML: the hosts and GPUs to simulate'
complete -c gsaas-standalone -n '__gsaas_standalone_at \'\'' -l listen -x -d 'where the API answers (127.0.0.1:9870); port 0 takes a free one'
complete -c gsaas-standalone -n '__gsaas_standalone_at \'\'' -l prefix -x -d 'beginning of every namespace\'s name (gsaas-)'
complete -c gsaas-standalone -n '__gsaas_standalone_at \'\'' -l config-file -r -F -d ''
complete -c gsaas-standalone -n '__gsaas_standalone_at \'\'' -l log-file -r -F -d 'instead of stderr'
complete -c gsaas-standalone -n '__gsaas_standalone_at \'\'' -l debug -d 'log every step'
complete -c gsaas-standalone -n '__gsaas_standalone_at \'\'' -l clean -d 'remove everything that was ever made, and exit'
