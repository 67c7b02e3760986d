"""Videos of trained policies: `render` plays the episodes, `drawing` draws states, `formats` writes GIF and MP4.

Used by the command `render`.
"""
