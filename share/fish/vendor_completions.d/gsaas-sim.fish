# Completion of gsaas-sim for fish. Written by `./dev generate`: change the commands, or generate/, instead.

# Print the command on the line before the cursor, with "--" if another command line follows; and the number of its
# arguments.
function __gsaas_sim_command
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
            case --column --format --gpu-cost --gpus --host-cost --hosts --kwh-cost --memory-mb --output --percent --policy --wait --years -c -f -o
                set skip yes
            case '-*'
                continue
            case '*'
                if contains -- (string trim "$command $word") 'run' 'compare' 'import' 'plan' 'example'
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
function __gsaas_sim_at
    set -l found (__gsaas_sim_command)
    test "$found[1]" = "$argv[1]"; and test "$found[2]" = "$argv[2]" -o (count $argv) -eq 1
end

complete -c gsaas-sim -f

complete -c gsaas-sim -n '__gsaas_sim_at \'\'' -a run -d 'run a scenario and write its results'
complete -c gsaas-sim -n '__gsaas_sim_at \'\'' -a compare -d 'print the summaries of several results in one table'
complete -c gsaas-sim -n '__gsaas_sim_at \'\'' -a import -d 'convert a history from another format'
complete -c gsaas-sim -n '__gsaas_sim_at \'\'' -a plan -d 'calculate how many GPUs a history needs, tied and cloudified'
complete -c gsaas-sim -n '__gsaas_sim_at \'\'' -a example -d 'print a scenario to begin with'
complete -c gsaas-sim -n '__gsaas_sim_at \'\'' -s h -d 'show this help message and exit'
complete -c gsaas-sim -n '__gsaas_sim_at \'\'' -l help -d 'show this help message and exit'

complete -c gsaas-sim -n '__gsaas_sim_at \'run\'' -s h -d 'show this help message and exit'
complete -c gsaas-sim -n '__gsaas_sim_at \'run\'' -l help -d 'show this help message and exit'
complete -c gsaas-sim -n '__gsaas_sim_at \'run\'' -s o -r -F -d 'folder to write summary, requests and report.html to'
complete -c gsaas-sim -n '__gsaas_sim_at \'run\'' -l output -r -F -d 'folder to write summary, requests and report.html to'
complete -c gsaas-sim -n '__gsaas_sim_at \'run\'' -l parquet -d 'requests as Parquet instead of CSV'
complete -c gsaas-sim -n '__gsaas_sim_at \'run\'' -s f -x -a 'table json csv value yaml' -d 'output format (table)'
complete -c gsaas-sim -n '__gsaas_sim_at \'run\'' -l format -x -a 'table json csv value yaml' -d 'output format (table)'
complete -c gsaas-sim -n '__gsaas_sim_at \'run\'' -s c -x -d 'print this column only; repeat it for several, in the order wanted'
complete -c gsaas-sim -n '__gsaas_sim_at \'run\'' -l column -x -d 'print this column only; repeat it for several, in the order wanted'
complete -c gsaas-sim -n '__gsaas_sim_at \'run\'' -l json -d 'the same as -f json'
complete -c gsaas-sim -n '__gsaas_sim_at \'run\' 0' -F

complete -c gsaas-sim -n '__gsaas_sim_at \'compare\'' -s h -d 'show this help message and exit'
complete -c gsaas-sim -n '__gsaas_sim_at \'compare\'' -l help -d 'show this help message and exit'
complete -c gsaas-sim -n '__gsaas_sim_at \'compare\'' -s f -x -a 'table json csv value yaml' -d 'output format (table)'
complete -c gsaas-sim -n '__gsaas_sim_at \'compare\'' -l format -x -a 'table json csv value yaml' -d 'output format (table)'
complete -c gsaas-sim -n '__gsaas_sim_at \'compare\'' -s c -x -d 'print this column only; repeat it for several, in the order wanted'
complete -c gsaas-sim -n '__gsaas_sim_at \'compare\'' -l column -x -d 'print this column only; repeat it for several, in the order wanted'
complete -c gsaas-sim -n '__gsaas_sim_at \'compare\'' -l json -d 'the same as -f json'
complete -c gsaas-sim -n '__gsaas_sim_at \'compare\'' -F

complete -c gsaas-sim -n '__gsaas_sim_at \'import\'' -s h -d 'show this help message and exit'
complete -c gsaas-sim -n '__gsaas_sim_at \'import\'' -l help -d 'show this help message and exit'
complete -c gsaas-sim -n '__gsaas_sim_at \'import\'' -s o -r -F -d 'file to write (standard output)'
complete -c gsaas-sim -n '__gsaas_sim_at \'import\'' -l output -r -F -d 'file to write (standard output)'
complete -c gsaas-sim -n '__gsaas_sim_at \'import\'' -l memory-mb -x -d 'MiB of a whole GPU, for traces that do not say it (81920)'
complete -c gsaas-sim -n '__gsaas_sim_at \'import\' 0' -a 'csv swf openb leases api'
complete -c gsaas-sim -n '__gsaas_sim_at \'import\' 1' -F

complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -s h -d 'show this help message and exit'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -l help -d 'show this help message and exit'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -l gpus -x -d 'number of GPUs of each host'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -l memory-mb -x -d 'MiB of each GPU'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -l hosts -r -F -d 'instead of these: a TOML file with the kinds of hosts that may be bought, and their prices'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -s o -r -F -d 'folder to write summary and report.html to'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -l output -r -F -d 'folder to write summary and report.html to'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -l wait -x -d 'seconds for which a request may wait (60)'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -l percent -x -d 'percentage of requests that must not wait longer (95)'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -l policy -x -a 'best-fit best-fit-utilisation energy fewer-jobs-gpu fewer-jobs-node first-fit first-local first-remote fragmentation-gradient least-load-fit local-gradient performance round-robin worst-fit' -d 'policy to try; repeat it for several, of which the one that needs the fewest GPUs counts'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -l host-cost -x -d 'purchase price of one host without GPUs (0)'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -l gpu-cost -x -d 'purchase price of one GPU (0)'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -l years -x -d 'years over which hosts and GPUs are paid (4)'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -l kwh-cost -x -d 'price of a kilowatt-hour'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -s f -x -a 'table json csv value yaml' -d 'output format (table)'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -l format -x -a 'table json csv value yaml' -d 'output format (table)'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -s c -x -d 'print this column only; repeat it for several, in the order wanted'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -l column -x -d 'print this column only; repeat it for several, in the order wanted'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\'' -l json -d 'the same as -f json'
complete -c gsaas-sim -n '__gsaas_sim_at \'plan\' 0' -F

complete -c gsaas-sim -n '__gsaas_sim_at \'example\'' -s h -d 'show this help message and exit'
complete -c gsaas-sim -n '__gsaas_sim_at \'example\'' -l help -d 'show this help message and exit'
