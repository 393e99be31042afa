"""Line magics: one module for each subject."""
