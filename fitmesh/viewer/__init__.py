"""`fitmesh view`: a page in the browser, served to this computer only."""
