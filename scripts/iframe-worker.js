// A Worker in a hidden frame, for pages that a browser opens as files: there it refuses real ones, and the site's search has one.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.body.appendChild(document.createElement("iframe"))
      frame.hidden = true
      frame.reply = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.inner = frame.contentWindow
      this.ready = new Promise(resolve => (frame.ready = resolve))
      this.inner.document.open()
      this.inner.document.write(`<script>postMessage = data => frameElement.reply(data)</script>
        <script src="${url}" onload="frameElement.ready()"></script>`)
      this.inner.document.close()
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
