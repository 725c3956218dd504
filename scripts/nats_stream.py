"""Creates the stream HOOKS for hooks.> at the server on a port of this machine: nats_stream.py PORT"""

import json, socket, sys, time

request = json.dumps({"name": "HOOKS", "subjects": ["hooks.>"], "storage": "file"}).encode()
for _ in range(100):
    try:
        connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
        break
    except OSError:
        time.sleep(0.1)
else:
    sys.exit("nats-server does not start")
lines = connection.makefile("rb")
lines.readline()
connection.sendall(
    b'CONNECT {"verbose":false}\r\nSUB reply 1\r\n'
    + b"PUB $JS.API.STREAM.CREATE.HOOKS reply %d\r\n%s\r\n" % (len(request), request)
)
while not lines.readline().startswith(b"MSG reply"):
    pass
answer = json.loads(lines.readline())
if "error" in answer:
    sys.exit(f"the stream is not created: {answer['error']['description']}")
print(f"stream HOOKS takes hooks.> at 127.0.0.1:{sys.argv[1]}")
