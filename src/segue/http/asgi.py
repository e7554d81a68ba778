"""Extensions of ASGI between this server and its applications."""

# A `websocket.send` event may have this key: a list of texts as UTF-8, each sent as one message.
# The server writes them to the socket at once, which takes a fraction of the time.
SEND_BATCH = "segue.texts"
