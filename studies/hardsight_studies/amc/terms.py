"""The words that the pages of the AMC-Loss studies share: each loss and measure is explained alike."""

LOSSES = """- **cross-entropy**: ordinary training.
- **+ Euclidean**: cross-entropy plus a contrastive loss on the features (the input of the last layer). Training images
  are taken in pairs. The loss pulls the features of a pair together if both images belong to one class, and otherwise
  pushes them apart up to a margin, by Euclidean distance.
- **+ AMC** (AMC-Loss, angular margin contrastive loss): the same with the angle between the two features instead of
  their distance."""
FEATURE_COLUMNS = """- `accuracy`: on the test images, as a share.
- `homogeneity of predictions`, `completeness of predictions`: homogeneity is 1 if all images predicted as one class
  belong to one class, completeness is 1 if all images of a class are predicted as one class. The authors' script
  computes these.
- `homogeneity of clusters`, `completeness of clusters`: the same for k-means clusters of the feature directions, as the
  paper describes it.
- `within`, `between`: the mean angle, in radians, between two test images of one class and of two classes.
- `silhouette`: how much nearer an image is to its own class than to the nearest other one, by angle; at most 1, larger
  is better.

The *V-measure* is the harmonic mean of homogeneity and completeness. ± is the standard deviation over runs."""
