"""Notes over HTTP: python3 app.py PORT."""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

notes: list[str] = []


class Notes(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        number = self.path.removeprefix("/notes/")
        if number.isdigit() and 1 <= int(number) <= len(notes):
            self.reply(200, {"id": int(number), "text": notes[int(number) - 1]})
        else:
            self.reply(404, {"error": "no such note"})

    def do_POST(self) -> None:
        self.reply(501, {"error": "not implemented"})

    def reply(self, status: int, value: dict[str, object]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


HTTPServer(("127.0.0.1", int(sys.argv[1])), Notes).serve_forever()
