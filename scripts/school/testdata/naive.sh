#!/usr/bin/env bash
# The first evening in a shell: socat carries the bytes, to the first endpoint only.
for word; do
  case $word in
    -registry_dir=*) root=${word#*=}/registry/services ;;
    -bind_address=*) bind=${word#*=} ;;
  esac
done

declare -A open
while :; do
  for spec in "$root"/specs/*; do
    name=${spec##*/}
    [[ -f $spec && -f $root/endpoints/$name && -z ${open[$name]} ]] || continue
    port=$(grep -o '"port":[0-9]*' "$spec" | cut -d: -f2)
    endpoint=$(grep -o '[0-9.]\+:[0-9]\+' "$root/endpoints/$name" | head -n1)
    [[ $port && $endpoint ]] || continue
    open[$name]=1
    socat "TCP-LISTEN:$port,bind=$bind,fork,reuseaddr" "TCP:$endpoint" &
  done
  sleep 0.1
done
