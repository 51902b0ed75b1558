# Runs the scripts that the test sends. A line with a script in base64 comes in on the machine's port. A line with the
# exit code and the script's output in base64 goes out.
export HOME="${HOME:-/root}"
until port=$(ls /dev/vport*p1 2>/dev/null); do sleep 0.1; done
exec 3<> "$port"
while read -r line <&3; do
  echo "$line" | base64 -d > /run/script
  sh /run/script > /run/output 2>&1 < /dev/null 3>&-
  code=$?
  # A long output is cut to its end: the test reads answers, not logs.
  printf '%s %s\n' "$code" "$(tail -c 1000000 /run/output | base64 -w 0)" >&3
done
