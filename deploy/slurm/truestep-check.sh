#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prolog and HealthCheckProgram of a node: reads the cached verdict, and nothing else.
#
# Ends with 1, which drains the node, only for a fail of this very node that has not expired and
# that root has written. Whatever else is found: 0. No program is started.
set -u
export LC_ALL=C

conf=${TRUESTEP_NODE_CONF:-/etc/truestep/node.conf}
node=${SLURMD_NODENAME:-${HOSTNAME%%.*}}
cache=/var/lib/truestep/verdict
screening_uid=
if [[ -f $conf && -r $conf ]]; then
    while IFS='=' read -r name value; do
        case $name in
            cache) cache=$value ;;
            screening_uid) screening_uid=$value ;;
        esac
    done < "$conf"
fi
cache=${cache//%n/$node}

# A node on probation must be screened, whatever its verdict says.
if [[ -n $screening_uid && ${SLURM_JOB_UID:-} == "$screening_uid" ]]; then exit 0; fi
# Owned by whoever runs this, which is root: nobody else may keep jobs off.
if [[ ! -f $cache || -L $cache || ! -O $cache ]]; then exit 0; fi
IFS= read -r -n 600 line < "$cache" || exit 0

pattern='^truestep1 node=([A-Za-z0-9._-]+) outcome=fail reason=([a-z0-9_]+) '
pattern+='serial=[0-9]+ issued_s=[0-9]+ expires_s=([0-9]{1,12})$'
[[ $line =~ $pattern ]] || exit 0
printf -v now '%(%s)T' -1
if [[ ${BASH_REMATCH[1]} == "$node" ]] && ((10#${BASH_REMATCH[3]} > now)); then
    echo "truestep: node $node failed its screening: ${BASH_REMATCH[2]}" >&2
    exit 1
fi
exit 0
