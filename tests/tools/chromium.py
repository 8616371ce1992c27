# SPDX-License-Identifier: MIT
"""Drives a headless Chromium over its debugging pipe, with nothing but Python's library."""
import base64
import json
import os
import shutil
import subprocess


def find():
    """Returns the path of a Chromium or Chrome; None if there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        path = shutil.which(name)
        if path:
            return path
    return None


class Failed(Exception):
    """The browser refused a command, or a script on the page threw."""


class Page:
    """One tab. `complaints`: errors, warnings, exceptions on its console; `requests`: addresses it asked for."""

    def __init__(self, chromium, folder, seconds=120):
        """folder: made for the browser, and removed by close(). seconds: after so many the browser is ended."""
        self.folder = folder
        os.mkdir(folder)
        from_us, self.out = os.pipe()
        self.into, to_us = os.pipe()
        self.complaints, self.requests, self.buffer, self.number, self.session = [], [], b"", 0, None

        # The browser reads from descriptor 3 and writes to 4. Descriptor 3 can be replaced first: to_us, made last, is
        # greater.
        become = 'exec "$@" 3<&%d 4>&%d' % (from_us, to_us)
        self.process = subprocess.Popen(
            ["bash", "-c", become, "bash", "timeout", "-k", "5", str(seconds), chromium, "--headless", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run",
             "--remote-debugging-pipe", "--user-data-dir=" + self.folder, "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(from_us, to_us))
        os.close(from_us)
        os.close(to_us)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(20)
        except (Failed, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self):
        while b"\0" not in self.buffer:
            more = os.read(self.into, 1 << 20)
            if not more:
                raise Failed("the browser has ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"])[:2000])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        return message

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise Failed("%s: %s" % (method, answer["error"]["message"]))
                return answer["result"]

    def run(self, script):
        """Returns the value of an expression on the page. If it is a promise, waits for it."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise Failed(script + ": " + json.dumps(result["exceptionDetails"])[:1000])
        return result["result"].get("value")

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, path):
        self.call("Page.navigate", url="file://" + os.path.realpath(path))
        while self._read().get("method") != "Page.loadEventFired":
            pass
        self.settle()

    def settle(self):
        """Waits until what was changed is drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 20))))")

    def prefer(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.settle()

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    def move(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, clip=None):
        """Returns a PNG of what is seen, or of the part `clip` of it: x, y, width, height, scale."""
        shot = {"format": "png"}
        if clip:
            at = self.run("[scrollX, scrollY]")
            shot["clip"] = dict(clip, x=clip["x"] + at[0], y=clip["y"] + at[1])
        return base64.b64decode(self.call("Page.captureScreenshot", **shot)["data"])
