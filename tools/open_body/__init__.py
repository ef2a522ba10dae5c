"""How `fitting/data/open_body.npz` is made from MakeHuman's CC0 assets. Not part of the installed
package.
"""
