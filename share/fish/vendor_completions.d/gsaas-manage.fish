# Completion of gsaas-manage for fish. Written by `./dev generate`: change the commands, or generate/, instead.

# Print the command on the line before the cursor, with "--" if another command line follows; and the number of its
# arguments.
function __gsaas_manage_command
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
            case --account --batch --config-file --fake --format --from --gpu --gpu-address --gsaas --json --native --older-than --role --share --virtual-host -f
                set skip yes
            case '-*'
                continue
            case '*'
                if contains -- (string trim "$command $word") 'check' 'db' 'db upgrade' 'db version' 'db check' 'db recount' 'db purge' 'grant-key' 'bus' 'bus key' 'bus permissions' 'prove' 'prove gpu-host' 'prove path' 'limits' 'limits register'
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
function __gsaas_manage_at
    set -l found (__gsaas_manage_command)
    test "$found[1]" = "$argv[1]"; and test "$found[2]" = "$argv[2]" -o (count $argv) -eq 1
end

complete -c gsaas-manage -f

complete -c gsaas-manage -n '__gsaas_manage_at \'\'' -a check -d 'check this installation: database, message bus, agents, Keystone, Nova, quotas'
complete -c gsaas-manage -n '__gsaas_manage_at \'\'' -a db -d 'the database: db upgrade, version, check, recount, purge'
complete -c gsaas-manage -n '__gsaas_manage_at \'\'' -a grant-key -d 'print a new key for [grants]key'
complete -c gsaas-manage -n '__gsaas_manage_at \'\'' -a bus -d 'the message bus: bus key, bus permissions'
complete -c gsaas-manage -n '__gsaas_manage_at \'\'' -a prove -d 'an acceptance test: prove gpu-host, prove path'
complete -c gsaas-manage -n '__gsaas_manage_at \'\'' -a limits -d 'Keystone\'s limits: limits register'
complete -c gsaas-manage -n '__gsaas_manage_at \'\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'\'' -l help -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'\'' -l config-file -r -F -d 'read this configuration instead of /etc/gsaas/gsaas.conf'

complete -c gsaas-manage -n '__gsaas_manage_at \'check\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'check\'' -l help -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'check\'' -s f -x -a 'table json' -d 'lines for people (default), or a JSON list of {part, level, said, todo}'
complete -c gsaas-manage -n '__gsaas_manage_at \'check\'' -l format -x -a 'table json' -d 'lines for people (default), or a JSON list of {part, level, said, todo}'

complete -c gsaas-manage -n '__gsaas_manage_at \'db\'' -a upgrade -d 'create the tables, or change them to what this release needs; keeps all data'
complete -c gsaas-manage -n '__gsaas_manage_at \'db\'' -a version -d 'print the revision that the database is at, or `none`'
complete -c gsaas-manage -n '__gsaas_manage_at \'db\'' -a check -d 'say whether the database is at the revision that this release needs'
complete -c gsaas-manage -n '__gsaas_manage_at \'db\'' -a recount -d 'count again what leases claim and reservations keep of each GPU'
complete -c gsaas-manage -n '__gsaas_manage_at \'db\'' -a purge -d 'delete the rows of leases that were released long ago'
complete -c gsaas-manage -n '__gsaas_manage_at \'db\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'db\'' -l help -d 'show this help message and exit'

complete -c gsaas-manage -n '__gsaas_manage_at \'db upgrade\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'db upgrade\'' -l help -d 'show this help message and exit'

complete -c gsaas-manage -n '__gsaas_manage_at \'db version\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'db version\'' -l help -d 'show this help message and exit'

complete -c gsaas-manage -n '__gsaas_manage_at \'db check\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'db check\'' -l help -d 'show this help message and exit'

complete -c gsaas-manage -n '__gsaas_manage_at \'db recount\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'db recount\'' -l help -d 'show this help message and exit'

complete -c gsaas-manage -n '__gsaas_manage_at \'db purge\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'db purge\'' -l help -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'db purge\'' -l older-than -x -d 'delete what was released more than DAYS days ago, instead of [engine]keep_released'
complete -c gsaas-manage -n '__gsaas_manage_at \'db purge\'' -l batch -x -d 'delete N leases in each transaction (default: 500)'
complete -c gsaas-manage -n '__gsaas_manage_at \'db purge\'' -l dry-run -d 'only say how many leases would be deleted'
complete -c gsaas-manage -n '__gsaas_manage_at \'db purge\'' -s f -x -a 'table json' -d 'a line for people (default), or a JSON object of {released_before, leases, dry_run}'
complete -c gsaas-manage -n '__gsaas_manage_at \'db purge\'' -l format -x -a 'table json' -d 'a line for people (default), or a JSON object of {released_before, leases, dry_run}'

complete -c gsaas-manage -n '__gsaas_manage_at \'grant-key\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'grant-key\'' -l help -d 'show this help message and exit'

complete -c gsaas-manage -n '__gsaas_manage_at \'bus\'' -a key -d 'print a new secret for [bus]secrets, or the key of a host\'s agent for [bus]host_keys'
complete -c gsaas-manage -n '__gsaas_manage_at \'bus\'' -a permissions -d 'print or set what the account of a host may do on RabbitMQ'
complete -c gsaas-manage -n '__gsaas_manage_at \'bus\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'bus\'' -l help -d 'show this help message and exit'

complete -c gsaas-manage -n '__gsaas_manage_at \'bus key\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'bus key\'' -l help -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'bus key\'' -l role -x -a 'gpu compute' -d 'with HOST: gpu for gsaas-monitor, compute for gsaas-rodvr'

complete -c gsaas-manage -n '__gsaas_manage_at \'bus permissions\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'bus permissions\'' -l help -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'bus permissions\'' -l role -x -a 'gpu compute' -d 'gpu: it runs gsaas-monitor; compute: gsaas-rodvr; twice for a host that runs both'
complete -c gsaas-manage -n '__gsaas_manage_at \'bus permissions\'' -l account -x -d 'default: gsaas-HOST'
complete -c gsaas-manage -n '__gsaas_manage_at \'bus permissions\'' -l virtual-host -x -d 'default: gsaas'
complete -c gsaas-manage -n '__gsaas_manage_at \'bus permissions\'' -l apply -d 'run the commands'

complete -c gsaas-manage -n '__gsaas_manage_at \'prove\'' -a gpu-host -d 'run on a GPU host: driver, GPUs, limits, a daemon, a CUDA program, and their end'
complete -c gsaas-manage -n '__gsaas_manage_at \'prove\'' -a path -d 'from a consumer\'s host through a lease to a GPU'
complete -c gsaas-manage -n '__gsaas_manage_at \'prove\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'prove\'' -l help -d 'show this help message and exit'

complete -c gsaas-manage -n '__gsaas_manage_at \'prove gpu-host\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'prove gpu-host\'' -l help -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'prove gpu-host\'' -l gpu -x -d 'only this GPU; may be given again'
complete -c gsaas-manage -n '__gsaas_manage_at \'prove gpu-host\'' -l fake -r -a '(__fish_complete_directories (commandline -ct))' -d 'without a GPU: use the CUDA library in FOLDER, or the fake driver of the tests in a clone of the repository, and start plain processes instead of units'
complete -c gsaas-manage -n '__gsaas_manage_at \'prove gpu-host\'' -l plain -d 'start plain processes instead of units, where there is no systemd: the walls of daemons are not proved'
complete -c gsaas-manage -n '__gsaas_manage_at \'prove gpu-host\'' -l share -x -d 'MiB of the cGPU (1024)'
complete -c gsaas-manage -n '__gsaas_manage_at \'prove gpu-host\'' -l json -r -F -d 'write everything to FILE as JSON, too'

complete -c gsaas-manage -n '__gsaas_manage_at \'prove path\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'prove path\'' -l help -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'prove path\'' -l from -x -d 'where programs run'
complete -c gsaas-manage -n '__gsaas_manage_at \'prove path\'' -l gpu-address -x -d 'a GPU host on the GPU network, to check the MTU up to it'
complete -c gsaas-manage -n '__gsaas_manage_at \'prove path\'' -l native -r -F -d 'what prove gpu-host --json wrote there, to compare with'
complete -c gsaas-manage -n '__gsaas_manage_at \'prove path\'' -l gsaas -x -d 'the command on HOST (default: gsaas)'
complete -c gsaas-manage -n '__gsaas_manage_at \'prove path\'' -l share -x -d 'MiB of the cGPU (1024)'
complete -c gsaas-manage -n '__gsaas_manage_at \'prove path\'' -l json -r -F -d 'write everything to FILE as JSON, too'

complete -c gsaas-manage -n '__gsaas_manage_at \'limits\'' -a register -d 'create the registered limits that Keystone lacks, with the values of [quotas]'
complete -c gsaas-manage -n '__gsaas_manage_at \'limits\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'limits\'' -l help -d 'show this help message and exit'

complete -c gsaas-manage -n '__gsaas_manage_at \'limits register\'' -s h -d 'show this help message and exit'
complete -c gsaas-manage -n '__gsaas_manage_at \'limits register\'' -l help -d 'show this help message and exit'
